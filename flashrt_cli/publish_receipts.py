"""``flashrt publish-receipts``: a signed release."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashrt.release.state import State
from flashrt_cli.options import DEFAULT_STORE, StoreOption, open_store, open_verifier
from flashrt_cli.output import ExitCode, FormatOption, Output, Table, emit, finish, problem_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from flashrt.release.build import Release


def _created_at(asked: str | None, target: str | None) -> str:
    """The time asked for, else that of the release already there, else now, in UTC seconds."""
    from datetime import UTC, datetime

    from flashrt.release.folder import created_at

    if asked is not None:
        return asked
    there = created_at(Path(target)) if target and not target.startswith("hf:") else None
    return there or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _key(key: Path | None, passphrase: Path | None, dry: bool) -> Ed25519PrivateKey | None:
    from flashrt.release.signing_key import load_private
    from flashrt_runtime.reason import Reason, Refusal

    if key is not None:
        return load_private(key, passphrase)
    if dry:
        return None
    raise Refusal(
        Reason.SIGNATURE,
        "no key to sign with",
        subject="publish-receipts",
        do="make one with `flashrt keys new PATH` and give --key PATH, or say --unsigned",
    )


def _default_name(target: str | None) -> str:
    last = (target or "").removeprefix("hf:").rstrip("/").rpartition("/")[2]
    return last if last and last[0].isalnum() else "flashrt-release"


def _deliver(target: str | None, made: Release, dry_because: str | None) -> str:
    if dry_because is not None or target is None:
        return f"dry run, nothing was published: {dry_because}"
    if not target.startswith("hf:"):
        from flashrt.release.folder import write_folder

        return f"{target}: {write_folder(Path(target), made.files).value}"
    from huggingface_hub import HfApi

    from flashrt.release.hub import HubTarget, upload

    url = upload(HubTarget.parse(target), made.files, f"Release {made.digest}", HfApi())
    return f"{target}: {url}"


def _why_dry(target: str | None, dry_run: bool) -> str | None:
    if dry_run:
        return "--dry-run was given"
    if target is None:
        return "no target was given (--to DIR or --to hf:org/name)"
    if target.startswith("hf:"):
        from flashrt.release.hub import HubTarget, offline_because

        HubTarget.parse(target)
        return offline_because(os.environ)
    return None


def publish_receipts(
    *,
    store: StoreOption = DEFAULT_STORE,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="A folder, or hf:org/name (made private if new); a dry run without it."
        ),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="Private key that signs the release.")
    ] = None,
    passphrase_file: Annotated[
        Path | None, typer.Option(help="The file that unlocks the key.")
    ] = None,
    unsigned: Annotated[bool, typer.Option("--unsigned", help="Publish without a key.")] = False,
    name: Annotated[str | None, typer.Option("--name", help="Name of the release.")] = None,
    require: Annotated[
        State, typer.Option("--require", help="Publish the cells that promise at least this.")
    ] = State.SUPPORTED_CORRECT,
    cell: Annotated[
        list[str] | None, typer.Option("--cell", help="Publish only this cell (a digest).")
    ] = None,
    revoke: Annotated[
        list[str] | None, typer.Option("--revoke", help="Withdraw this receipt (a digest).")
    ] = None,
    created_at: Annotated[
        str | None, typer.Option("--created-at", help="RFC 3339 UTC time; now by default.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Publish nothing.")] = False,
    fmt: FormatOption = None,
) -> None:
    """Build a signed release from verified receipts."""
    from flashrt.release.build import Request, build
    from flashrt.release.privacy import this_machine

    if unsigned and key is not None:
        raise typer.BadParameter("--unsigned and --key contradict each other")
    dry = _why_dry(to, dry_run)
    private = None if unsigned else _key(key, passphrase_file, dry is not None)
    request = Request(
        name=name or _default_name(to),
        created_at=_created_at(created_at, to),
        require=require,
        cells=tuple(cell or ()),
        revoke=tuple(revoke or ()),
    )
    opened = open_store(store)
    made = build(opened, request, open_verifier(), private, this_machine())
    routes = made.manifest["routes"]
    published = bool(routes) or bool(made.manifest["revokes"])
    if not published:
        dry = f"no live receipt reaches {require.value}"
    if request.revoke and dry is None:
        # Before it is published: no later release may carry what this one takes back.
        opened.revoke(made.manifest["revokes"], request.created_at)
    done = _deliver(to, made, dry)
    certified = sum(route["state"] == State.CERTIFIED_FAST for route in routes)
    lines = [done, f"{len(routes)} cells, {certified} certified fast; release {made.digest}"]
    if routes and not certified:
        lines.append(
            "no cell is certified fast: the runtime keeps the host for these "
            "(policy='host') or refuses"
        )
    lines.append("signed" if made.signed else "not signed: a runtime loads it only when told to")
    sizes = [(path, str(len(data))) for path, data in made.files.items()]
    digests = {e["path"]: e["sha256"] for e in made.manifest["files"]}
    emit(
        Output(
            title=f"release {request.name}",
            tables=[
                Table(
                    ("file", "bytes", "sha256"),
                    [(path, size, digests.get(path, "")[7:19]) for path, size in sizes],
                    "files",
                )
            ],
            lines=lines,
            data={
                "release": made.digest,
                "name": request.name,
                "created_at": request.created_at,
                "target": to,
                "dry_run": dry,
                "signed": made.signed,
                "certified": certified,
                "routes": [
                    {k: r[k] for k in ("cell_digest", "receipt", "state", "band", "rank")}
                    for r in routes
                ],
                "files": [{"path": p, "bytes": len(d)} for p, d in made.files.items()],
                "left_out": [b.record() for b in made.left_out],
            },
            warnings=[problem_of(because) for because in made.left_out],
        ),
        fmt,
    )
    if published:
        finish(ExitCode.OK)
    finish(ExitCode.GATE_FAILED if made.left_out else ExitCode.NOT_MEASURED)
