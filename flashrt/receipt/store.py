"""The store: content-addressed, append-only. A name is a digest; nothing is ever overwritten."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from flashrt.document.atomic import write_atomic
from flashrt.document.canonical import canonical_bytes, digest_of, read_json, seal, sha256
from flashrt.document.problem import InputError, Problem
from flashrt.document.schema import problems
from flashrt.receipt import live as liveness
from flashrt.receipt.build import attempt_record
from flashrt.receipt.instant import instant
from flashrt_runtime.reason import Reason, Refusal

KINDS = ("qualification", "calibration", "plan", "preflight", "incomplete", "revocation")
TABLE = "table"
DEFAULT_ROOT = Path(".flashrt/store")
# Records whose shape is checked on the way in and out: whoever lists them reads their fields.
SCHEMA_OF = {
    "qualification": "qualification_receipt",
    "calibration": "calibration_receipt",
    "preflight": "preflight_record",
    "incomplete": "preflight_record",
    "revocation": "revocation",
}
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_NAME = re.compile(r"[0-9a-f]{64}\.json")


class Store:
    """Records under ``root/<kind>/<hex>.json`` and tables under ``root/table/<hex>.safetensors``.

    Any number of processes may write at once: different content has different names, equal content
    writes equal bytes, and each file appears whole or not at all. Files whose names are not
    digests (temporary files of a writer that was killed) are ignored.
    """

    def __init__(self, root: Path = DEFAULT_ROOT) -> None:
        self.root = root

    def path(self, kind: str, digest: str) -> Path:
        """Where a record is. Raises :class:`Refusal` (CONFLICT, DIGEST) for no kind or digest."""
        if kind not in KINDS:
            raise Refusal(Reason.CONFLICT, f"{kind!r} is none of {', '.join(KINDS)}", subject=kind)
        return self.root / kind / f"{_hex(digest)}.json"

    def put(self, kind: str, body: dict[str, Any]) -> str:
        """Seal and keep a record; its digest. Putting it again changes nothing.

        Raises :class:`Refusal`: SCHEMA when the body is not JSON (NaN included); DIGEST when it
        carries another digest than its content's, or the file of that name holds something else
        (it is left as it is); CONFLICT when the body says that it is of another kind; STORAGE
        when it cannot be written.
        """
        try:
            sealed = seal(body)
        except ValueError as error:
            raise Refusal(Reason.SCHEMA, str(error), subject=f"a {kind} record") from error
        digest = sealed["digest"]
        path = self.path(kind, digest)
        if kind == "revocation":
            _shaped(sealed, SCHEMA_OF[kind], f"a {kind} record")
        if body.get("digest", digest) != digest:
            raise _mismatch(f"the body says {body['digest']}", digest)
        if body.get("kind", kind) != kind:
            raise Refusal(Reason.CONFLICT, f"a {body['kind']} is put as a {kind}", subject=digest)
        _keep(path, canonical_bytes(sealed))
        return str(digest)

    def get(self, kind: str, digest: str) -> dict[str, Any]:
        """The record with this digest.

        Raises :class:`Refusal` (DIGEST) when it is absent or not itself, and
        :class:`~flashrt.document.problem.InputError` when it is a whole record of another shape.
        """
        path = self.path(kind, digest)
        if not path.is_file():
            raise Refusal(
                Reason.DIGEST,
                f"no {kind} record has this digest",
                subject=digest,
                do=f"look into {self.root} or give another --store",
            )
        return _read(path, kind)

    def list(self, kind: str) -> Iterator[dict[str, Any]]:
        """Every record of a kind, by name. Raises as :meth:`get` at one that is none."""
        folder = self.path(kind, "sha256:" + "0" * 64).parent
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                if _NAME.fullmatch(path.name):
                    yield _read(path, kind)

    def put_table(self, data: bytes) -> str:
        """Keep a calibration table (safetensors bytes); its digest. Raises as :meth:`put`."""
        digest = sha256(data)
        _keep(self._table(digest), data)
        return digest

    def table_path(self, digest: str) -> Path:
        """Path of a table that was read and found to be itself. Raises (DIGEST)."""
        path = self._table(digest)
        if not path.is_file():
            raise Refusal(Reason.DIGEST, "no table has this digest", subject=digest)
        if sha256(path.read_bytes()) != digest:
            raise _mismatch("the content is not what the name says", str(path))
        return path

    def _table(self, digest: str) -> Path:
        return self.root / TABLE / f"{_hex(digest)}.safetensors"

    def attempts(self, cell_digest: str) -> tuple[dict[str, Any], ...]:
        """Every earlier attempt at a cell, oldest first, as a receipt lists them.

        Interrupted measurements count: whoever stops a race that goes badly has tried.
        """
        bodies = [*self.list("qualification"), *self.list("incomplete")]
        mine = [attempt_record(b) for b in bodies if b.get("cell_digest") == cell_digest]
        return tuple(sorted(mine, key=lambda a: (instant(a["ended_at"]), a["digest"])))

    def revoke(self, digests: Iterable[str], at: str) -> str | None:
        """Remember that these receipts were withdrawn ``at`` a time (RFC 3339, UTC).

        The record's digest, or None when all of them were withdrawn before. Raises as
        :meth:`put`, and (SCHEMA) for what is no digest or no time.
        """
        new = sorted(set(digests) - self.revoked())
        if not new:
            return None
        body = {"schema": "flashrt.revocation/1", "kind": "revocation"}
        return self.put("revocation", {**body, "revokes": new, "revoked_at": at})

    def revoked(self) -> frozenset[str]:
        """Receipts that were withdrawn when a release was published (see :meth:`revoke`)."""
        return frozenset(d for body in self.list("revocation") for d in body["revokes"])

    def live(self, cell_digest: str) -> dict[str, Any] | None:
        """The one receipt of a cell that is neither superseded nor revoked, or None.

        Raises :class:`Refusal` (AMBIGUOUS) naming them when there are several.
        """
        return liveness.live(self.list("qualification"), cell_digest, self.revoked())

    def heads(self, cell_digest: str) -> tuple[dict[str, Any], ...]:
        """Every live receipt of a cell, oldest first: one, unless two were written at once.

        A new receipt supersedes the last of them and revokes the others.
        """
        return liveness.heads(self.list("qualification"), cell_digest, self.revoked())

    def latest(self, cell_digest: str) -> dict[str, Any] | None:
        """The same as :meth:`live`: of a cell's receipts, only the live one counts."""
        return self.live(cell_digest)


def _hex(digest: str) -> str:
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise Refusal(
            Reason.DIGEST, "not of the form sha256:<64 hex digits>", subject=repr(digest)[:100]
        )
    return match.group(1)


def _mismatch(what: str, subject: str) -> Refusal:
    return Refusal(
        Reason.DIGEST, what, subject=subject, do="restore the file or move it out of the store"
    )


def _keep(path: Path, data: bytes) -> None:
    try:
        there = path.read_bytes()
    except FileNotFoundError:
        write_atomic(path, data)
        return
    except OSError as error:
        raise Refusal(
            Reason.STORAGE, f"cannot read: {error.strerror or error}", subject=str(path)
        ) from error
    if there != data:
        raise _mismatch("the file of this name holds something else", str(path))


def _shaped(body: dict[str, Any], schema: str | None, file: str) -> None:
    """Raise ``InputError`` for a body that does not satisfy the schema, where its kind has one."""
    wrong = [] if schema is None else problems(body, schema, file=file)
    if wrong:
        do = f"move it out of the store, or see `flashrt schema {schema}`"
        raise InputError.of([Problem(p.file, p.line, p.path, p.what, do, p.reason) for p in wrong])


def _read(path: Path, kind: str) -> dict[str, Any]:
    body = read_json(path)
    try:
        itself = f"sha256:{path.stem}" == body.get("digest") == digest_of(body)
    except ValueError:
        itself = False
    if not itself:
        raise _mismatch("the content is not what the name says", str(path))
    _shaped(body, SCHEMA_OF.get(kind), str(path))
    if body.get("kind", kind) != kind:
        raise _mismatch(f"a {body['kind']} lies among the {kind} records", str(path))
    return body
