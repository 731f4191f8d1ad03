"""Checks a release folder: signature first, then every digest, every receipt and every route."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from flashrt.document import schema
from flashrt.document.canonical import (
    MAX_BYTES,
    canonical_bytes,
    digest_of,
    parse_json,
    read_json,
    sha256,
)
from flashrt.document.problem import InputError, Problem
from flashrt.document.read import read_regular
from flashrt.release.build import ENVELOPE, MANIFEST
from flashrt.release.route import ranked, route_of
from flashrt.release.signing_key import PublicKey
from flashrt.release.source import Verifier, hex_of
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.release_reader import read_release
from flashrt_runtime.trust import verify_envelope


def open_manifest(folder: Path, trusted: Sequence[PublicKey] | None) -> dict[str, Any]:
    """The manifest of a folder, its signature checked before it is parsed.

    ``trusted=None`` reads an unsigned folder: the caller says so. Raises :class:`Refusal`
    (SIGNATURE, DIGEST) for a manifest that is not what was signed, and :class:`InputError` for one
    that cannot be read.
    """
    path, envelope = folder / MANIFEST, folder / ENVELOPE
    data = _read(path, "name a release folder")
    if trusted is not None:
        if not envelope.is_file():
            raise Refusal(
                Reason.SIGNATURE, "the release is not signed", subject=str(envelope),
                do="use --unsigned to check it as it is",
            )  # fmt: skip
        keys = [key.raw for key in trusted]
        if verify_envelope(_read(envelope), keys, str(envelope)) != data:
            what = "these are not the bytes that were signed"
            raise Refusal(Reason.SIGNATURE, what, subject=str(path))
    manifest = parse_json(data, str(path))
    schema.require(manifest, "release", file=str(path))
    if canonical_bytes(manifest) != data:
        raise Refusal(Reason.DIGEST, "the bytes are not canonical", subject=str(path))
    return dict(manifest)


def _read(path: Path, do: str = "") -> bytes:
    try:
        return read_regular(path, MAX_BYTES)
    except InputError as error:
        problem = error.problems[0]
        raise InputError(str(path), 1, "$", problem.what, do) from error


def _bytes_problems(folder: Path, manifest: dict[str, Any]) -> Iterator[Problem]:
    listed = {entry["path"]: entry for entry in manifest["files"]}
    there = {str(p.relative_to(folder)): p for p in folder.rglob("*") if not p.is_dir()}
    for name in sorted(set(there) - set(listed) - {MANIFEST, ENVELOPE}):
        yield Problem(str(folder / name), 1, "$", "not listed in the manifest", "", Reason.DIGEST)
    for name, entry in sorted(listed.items()):
        path = folder / name
        if path.is_symlink() or not path.is_file():
            yield Problem(str(path), 1, "$", "listed, and not there", "", Reason.DIGEST)
        elif path.stat().st_size != entry["bytes"] or sha256(path.read_bytes()) != entry["sha256"]:
            yield Problem(
                str(path), 1, "$", "the bytes are not the ones that were published",
                "fetch the release again", Reason.DIGEST,
            )  # fmt: skip


def _body(folder: Path, kind: str, digest: str) -> dict[str, Any]:
    path = folder / kind / f"{hex_of(digest)}.json"
    body = read_json(path)
    if body.get("digest") != digest or digest_of(body) != digest:
        raise InputError(
            str(path), 1, "$.digest", "the body is not the one that the name says",
            reason=Reason.DIGEST,
        )  # fmt: skip
    return body


def _route_problems(
    folder: Path, manifest: dict[str, Any], verifier: Verifier
) -> Iterator[Problem]:
    file = str(folder / MANIFEST)
    again = []
    for index, route in enumerate(manifest["routes"]):
        where = f"$.routes[{index}]"
        if route["receipt"] in manifest["revokes"]:
            yield Problem(file, 1, f"{where}.receipt", "revoked", "", Reason.REVOKED)
        if route["cell_digest"] in {r["cell_digest"] for r in manifest["routes"][:index]}:
            yield Problem(
                file, 1, f"{where}.cell_digest", "two routes for one cell", "", Reason.AMBIGUOUS
            )
        try:
            receipt = _body(folder, "receipts", route["receipt"])
            name = str(folder / "receipts" / f"{hex_of(route['receipt'])}.json")
            for because in verifier(receipt):
                yield Problem(name, 1, because.subject or "$", because.detail, "", because.reason)
            again.append(route_of(receipt, _body(folder, "plans", receipt["plan"])))
        except InputError as error:
            yield from error.problems
        except Refusal as error:
            yield Problem(file, 1, where, error.what, error.do, error.reason)
    if len(again) == len(manifest["routes"]) and ranked(again) != manifest["routes"]:
        yield Problem(
            file, 1, "$.routes", "the routes do not follow from the receipts and plans", "",
            Reason.VERDICT,
        )  # fmt: skip


def _runtime_problems(folder: Path, trusted: Sequence[PublicKey] | None) -> Iterator[Problem]:
    """What the runtime itself would refuse."""
    try:
        keys = None if trusted is None else [key.raw for key in trusted]
        read_release(folder, keys, allow_unsigned=trusted is None)
    except Refusal as error:
        yield _problem(error, folder)


def _problem(error: Refusal, folder: Path) -> Problem:
    return Problem(error.subject or str(folder), 1, "$", error.what, error.do, error.reason)


def check_release(
    folder: Path, trusted: Sequence[PublicKey] | None, verifier: Verifier
) -> tuple[dict[str, Any] | None, list[Problem]]:
    """The manifest, and everything in the folder that does not hold.

    The manifest is ``None`` when its signature does not hold: then nothing else was looked at.
    Raises :class:`InputError` when the folder cannot be read.
    """
    try:
        manifest = open_manifest(folder, trusted)
    except InputError:
        raise
    except Refusal as error:
        return None, [_problem(error, folder)]
    found = list(_bytes_problems(folder, manifest))
    found = found or list(_route_problems(folder, manifest, verifier))
    return manifest, found or list(_runtime_problems(folder, trusted))
