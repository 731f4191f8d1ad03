"""``flashrt verify``: recompute what is claimed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashrt_cli.options import DEFAULT_STORE, StoreOption, empty, open_store, open_verifier
from flashrt_cli.output import (
    Case,
    ExitCode,
    FormatOption,
    Outcome,
    Output,
    Problem,
    Table,
    emit,
    finish,
)

if TYPE_CHECKING:
    from flashrt.release.source import Verifier


KINDS = ("qualification", "preflight", "incomplete", "revocation")


def _find(subject: str, store: Path) -> list[Path]:
    """Files that one argument names: a file, a folder's receipts, or a digest of the store."""
    from flashrt.document.canonical import read_json
    from flashrt.document.problem import InputError
    from flashrt.release.source import hex_of, matches
    from flashrt_runtime.reason import Reason

    path = Path(subject)
    if path.is_file():
        return [path]
    if path.is_dir():
        return [p for p in sorted(path.rglob("*.json")) if read_json(p).get("kind") in KINDS]
    found = [p for p in _stored(store) if matches(p.stem, subject)]
    if not found:
        found = [
            p for p in _stored(store) if matches(str(read_receipt(p).get("cell_digest")), subject)
        ]
    if not found:
        raise InputError(
            subject, 1, "$", f"no such file, and nothing in the store is named {hex_of(subject)}",
            "see `flashrt matrix`", reason=Reason.UNKNOWN_CELL,
        )  # fmt: skip
    return found


def _stored(store: Path) -> list[Path]:
    root = open_store(store).root
    return [p for kind in KINDS for p in sorted((root / kind).glob("[!.]*.json"))]


def read_receipt(path: Path) -> dict[str, Any]:
    """A receipt's body, as it stands in the file. Raises ``InputError`` for what is none."""
    from flashrt.document.canonical import read_json
    from flashrt.document.problem import InputError

    body = read_json(path)
    if body.get("kind") not in KINDS:
        raise InputError(str(path), 1, "$.kind", f"{body.get('kind')!r} is no kind of receipt")
    return body


def _check(path: Path, body: dict[str, Any], verifier: Verifier) -> list[Problem]:
    from flashrt_runtime.reason import Reason

    name = str(path)
    found = [Problem(name, 1, b.subject or "$", b.detail, "", b.reason) for b in verifier(body)]
    if len(path.stem) == 64 and body.get("digest") != f"sha256:{path.stem}":
        what = "the body is not the one that the file's name says"
        found.insert(0, Problem(name, 1, "$.digest", what, "", Reason.DIGEST))
    return found


def _state(body: dict[str, Any]) -> str:
    """The state that a record claims; what it withdraws, where it claims none."""
    if body["kind"] == "revocation":
        return f"withdraws {len(body['revokes'])}"
    return str(body["verdict"]["state"])


def _receipts(subjects: list[str], store: Path, verifier: Verifier) -> Output:
    paths = [p for subject in subjects for p in _find(subject, store)]
    found = [(p, read_receipt(p)) for p in (paths if subjects else _stored(store))]
    problems: list[Problem] = []
    rows, cases, records = [], [], []
    for path, body in found:
        wrong = _check(path, body, verifier)
        problems += wrong
        state = "does not hold" if wrong else _state(body)
        stored = len(path.stem) == 64
        name = f"{path.parent.name}/{path.stem[:12]}" if stored else str(path)
        rows.append((name, state, f"{len(wrong)} wrong" if wrong else "every claim holds"))
        outcome = Outcome.FAILED if wrong else Outcome.PASSED
        cases.append(Case(str(path), outcome, "; ".join(p.what for p in wrong)))
        records.append({"file": str(path), "digest": body.get("digest"), "holds": not wrong})
    return Output(
        title=f"{len(found)} receipts recomputed",
        lines=[] if found else [empty(store)],
        tables=[Table(("receipt", "state", "verified"), rows)] if rows else [],
        data={"verified": not problems, "receipts": records},
        problems=problems,
        cases=cases,
    )


def _release(release: Path, trust: list[Path], unsigned: bool, verifier: Verifier) -> Output:
    from flashrt.document.problem import InputError
    from flashrt.release.check import check_release
    from flashrt.release.signing_key import load_public
    from flashrt_runtime.reason import Reason

    if not trust and not unsigned:
        raise InputError(
            str(release), 1, "$", "nobody's signature is trusted",
            "give --trust KEY.pub, or --unsigned to check no signature", reason=Reason.SIGNATURE,
        )  # fmt: skip
    keys = None if unsigned else [load_public(path) for path in trust]
    manifest, problems = check_release(release, keys, verifier)
    routes = manifest["routes"] if manifest else []
    rows = [
        (r["cell_digest"][7:19], r["state"], r["band"], str(r["rank"]), str(len(r["seams"])))
        for r in routes
    ]
    signature = "not checked" if unsigned else "by a trusted key" if manifest else "does not hold"
    verdict = "does not hold" if problems else "holds"
    lines = []
    if manifest:
        lines = [f"{len(manifest['files'])} files, {len(manifest['revokes'])} receipts revoked"]
    return Output(
        title=f"release {release}: {verdict}, signature {signature}",
        tables=[Table(("cell", "state", "band", "rank", "seams"), rows, "routes")] if rows else [],
        lines=lines,
        data={
            "verified": not problems,
            "name": manifest["name"] if manifest else None,
            "signature": signature,
            "routes": [
                {k: r[k] for k in ("cell_digest", "receipt", "state", "band", "rank")}
                for r in routes
            ],
        },
        problems=problems,
    )


def verify(
    subjects: Annotated[
        list[str] | None, typer.Argument(help="Receipt files, folders or digests; all by default.")
    ] = None,
    *,
    store: StoreOption = DEFAULT_STORE,
    release: Annotated[
        Path | None, typer.Option("--release", help="Check a release folder instead.")
    ] = None,
    trust: Annotated[
        list[Path] | None, typer.Option("--trust", help="A public key whose signature counts.")
    ] = None,
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="Check a release without its signature.")
    ] = False,
    fmt: FormatOption = None,
) -> None:
    """Recompute receipts and check a release's signature and digests."""
    verifier = open_verifier()
    if release is not None:
        if subjects:
            raise typer.BadParameter("name receipts or a release, not both")
        result = _release(release, trust or [], unsigned, verifier)
    else:
        result = _receipts(subjects or [], store, verifier)
    emit(result, fmt)
    if release is None and not result.cases:
        finish(ExitCode.NOT_MEASURED)
    finish(ExitCode.GATE_FAILED if result.problems else ExitCode.OK)
