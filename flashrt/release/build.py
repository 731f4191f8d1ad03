"""A release in memory: verified receipts in, canonical bytes out; same inputs, same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flashrt.document import schema
from flashrt.document.canonical import canonical_bytes, sha256
from flashrt.document.problem import InputError, Problem
from flashrt.release import privacy
from flashrt.release.envelope import seal_envelope
from flashrt.release.resolve import Resolution, ambiguous, resolve, withdrawn
from flashrt.release.route import ranked, route_of
from flashrt.release.source import Body, Source, Verifier, hex_of, matches, short
from flashrt.release.state import State
from flashrt.release.tables import table_text
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MANIFEST = "release.json"
ENVELOPE = "release.dsse.json"


@dataclass(frozen=True)
class Request:
    """What to publish. ``cells`` are digests (or eight leading digits); empty means all."""

    name: str
    created_at: str  # RFC 3339, UTC
    require: State = State.SUPPORTED_CORRECT
    cells: tuple[str, ...] = ()
    revoke: tuple[str, ...] = ()


@dataclass(frozen=True)
class Release:
    """Every file of a release by its path, the manifest, and what was left out and why."""

    manifest: dict[str, Any]
    files: Mapping[str, bytes]
    left_out: tuple[Because, ...] = field(default=())

    @property
    def digest(self) -> str:
        """Digest of the manifest's bytes: the release's identity."""
        return sha256(self.files[MANIFEST])

    @property
    def signed(self) -> bool:
        """Whether there is an envelope."""
        return ENVELOPE in self.files


def _named(found: Resolution, receipts: list[Body], asked: str) -> str:
    """The one cell that ``asked`` names, or a refusal."""
    known = sorted({b["cell_digest"] for b in receipts if matches(b["cell_digest"], asked)})
    if len(known) == 1:
        return known[0]
    what = f"{len(known)} cells start so" if known else "no receipt was earned for this cell"
    reason = Reason.AMBIGUOUS if known else Reason.UNKNOWN_CELL
    raise Refusal(reason, what, subject=f"cell {asked}", do="see `flashrt matrix`")


def _unfit(receipt: Body, require: State) -> Because | None:
    """Why a live receipt is not published."""
    subject = f"receipt {short(receipt['digest'])}"
    if receipt["evidence"]["incomplete"] is not None:
        return Because(Reason.INCOMPLETE, str(receipt["evidence"]["incomplete"]), subject)
    state = State(receipt["verdict"]["state"])
    if state is State.UNKNOWN or receipt["plan"] is None:
        reasons = receipt["verdict"]["reasons"]
        if reasons:
            first = Because.from_record(reasons[0])
            return Because(first.reason, first.detail, subject)
        return Because(Reason.INCOMPLETE, "nothing was earned", subject)
    versions = (
        receipt["execution"]["tool_version"],
        receipt["cell"]["software"].get("flashrt") or "",
    )
    if any("dirty" in version for version in versions):
        return Because(Reason.SOFTWARE, "measured with a modified flashrt", subject)
    if not state.meets(require):
        return Because(Reason.LOSS, f"{state.value} is below {require.value}", subject)
    return None


def _choose(source: Source, request: Request) -> tuple[list[Body], list[Because], Resolution]:
    receipts: list[Body] = list(source.list("qualification"))
    for asked in request.revoke:
        if not any(matches(b["digest"], asked) for b in receipts):
            raise Refusal(Reason.CONFLICT, "no such receipt to revoke", subject=asked)
    named = [
        b["digest"] for b in receipts for asked in request.revoke if matches(b["digest"], asked)
    ]
    found = resolve(receipts, withdrawn(source) | set(named))
    wanted = [_named(found, receipts, asked) for asked in request.cells]
    cells = sorted(set(wanted)) if wanted else sorted({**found.live, **found.contested})
    chosen: list[Body] = []
    left_out: list[Because] = []
    for cell in cells:
        if cell in found.contested:
            raise ambiguous(cell, found.contested[cell])
        if cell not in found.live:
            raise Refusal(
                Reason.REVOKED, "its receipt was withdrawn", subject=f"cell {short(cell)}"
            )
        why = _unfit(found.live[cell], request.require)
        if why is None:
            chosen.append(found.live[cell])
        elif wanted:
            raise Refusal(why.reason, why.detail, subject=why.subject, do="qualify the cell again")
        else:
            left_out.append(why)
    return chosen, left_out, found


def _file(kind: str, digest: str) -> str:
    return f"{kind}/{hex_of(digest)}.json"


def _verified(receipts: list[Body], verifier: Verifier) -> None:
    problems = [
        Problem(
            _file("qualification", receipt["digest"]), 1, because.subject or "$", because.detail,
            "qualify the cell again", because.reason,
        )
        for receipt in receipts
        for because in verifier(receipt)
    ]  # fmt: skip
    if problems:
        raise InputError.of(problems)


def _private(parts: Mapping[str, Any], names: frozenset[str]) -> None:
    problems = [
        Problem(
            file, 1, leak.path, f"holds {leak.what}, which a release does not publish",
            "measure again with relative names", Reason.CONFLICT,
        )
        for file, value in sorted(parts.items())
        for leak in privacy.leaks(value, names)
    ]  # fmt: skip
    if problems:
        raise InputError.of(problems)


def build(
    source: Source,
    request: Request,
    verifier: Verifier,
    key: Ed25519PrivateKey | None,
    names: frozenset[str],
) -> Release:
    """A release of the live, complete, verified receipts that meet the request.

    ``names`` are what must not appear in it (see :func:`flashrt.release.privacy.this_machine`).
    Raises :class:`InputError` for a receipt that does not verify or holds private data, and
    :class:`Refusal` for two live receipts of one cell or a named cell that cannot be published.
    """
    chosen, left_out, found = _choose(source, request)
    _verified(chosen, verifier)
    parts: dict[str, Any] = {}
    tables: dict[str, bytes] = {}
    routes = []
    for receipt in chosen:
        parts[_file("receipts", receipt["digest"])] = receipt
        plan = source.get("plan", receipt["plan"])
        schema.require(plan, "plan", file=_file("plan", plan["digest"]))
        parts[_file("plans", plan["digest"])] = plan
        routes.append(route_of(receipt, plan))
        if receipt["cell"]["calibration"] is not None:
            calibration = source.get("calibration", receipt["cell"]["calibration"])
            parts[_file("calibration", calibration["digest"])] = calibration
            if not isinstance(calibration.get("table"), str):
                file = _file("calibration", calibration["digest"])
                raise InputError(file, 1, "$.table", "a calibration names its table")
            table = f"tables/{hex_of(calibration['table'])}.safetensors"
            tables[table] = source.table_path(calibration["table"]).read_bytes()
    _private(
        {MANIFEST: request.name, **parts, **{p: table_text(d, p) for p, d in tables.items()}}, names
    )
    files = {path: canonical_bytes(value) for path, value in parts.items()} | tables
    manifest = {
        "schema": "flashrt.release/1",
        "name": request.name,
        "created_at": request.created_at,
        "files": [
            {"path": path, "sha256": sha256(data), "bytes": len(data)}
            for path, data in sorted(files.items())
        ],
        "routes": ranked(routes),
        "revokes": list(found.revokes),
    }
    schema.require(manifest, "release", file=MANIFEST)
    files[MANIFEST] = canonical_bytes(manifest)
    if key is not None:
        files[ENVELOPE] = canonical_bytes(seal_envelope(files[MANIFEST], key))
    return Release(manifest, dict(sorted(files.items())), tuple(left_out))
