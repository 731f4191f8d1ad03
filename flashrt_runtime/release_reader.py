"""Reading a release folder: origin first, then integrity, then contents. Nothing is executed."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.route_record import Route, read_route
from flashrt_runtime.strict_json import is_digest, parse_object, sha256, take
from flashrt_runtime.trust import verify_envelope

MANIFEST = "release.json"
ENVELOPE = "release.dsse.json"
SCHEMA = "flashrt.release/1"


@dataclass(frozen=True)
class ReleaseContent:
    """A release that was read whole. ``digest`` is that of the manifest's bytes; ``signed`` says
    whether a trusted key vouches for it; ``revoked`` are receipts that were withdrawn and
    ``superseded`` those that a newer receipt of the release replaces."""

    root: Path
    name: str
    digest: str
    signed: bool
    routes: tuple[Route, ...]
    receipts: dict[str, dict[str, Any]]
    revoked: frozenset[str]
    superseded: frozenset[str]


def _refuse(reason: Reason, what: str, path: str) -> Refusal:
    return Refusal(reason, what, subject=path, do="get the release again from its owner")


def _read(root: Path, relative: str) -> bytes:
    """A regular file inside ``root``; no part of the path may be a link."""
    pure = PurePosixPath(relative)
    plain = relative == str(pure) and "\\" not in relative and "\0" not in relative
    if not plain or pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise _refuse(Reason.DIGEST, "the path leaves the release's folder", relative)
    path = root
    try:
        for part in pure.parts:
            path = path / part
            if stat.S_ISLNK(os.lstat(path).st_mode):
                raise _refuse(Reason.DIGEST, "a link is not part of a release", relative)
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise _refuse(Reason.DIGEST, "not a file", relative)
        return path.read_bytes()
    except OSError as error:
        raise _refuse(Reason.DIGEST, error.strerror or str(error), relative) from error


def _manifest(
    root: Path, trust: Sequence[bytes | str] | None, allow_unsigned: bool
) -> tuple[bytes, bool]:
    """The manifest's bytes and whether a trusted key signed exactly those."""
    if not os.path.lexists(root / MANIFEST):
        raise Refusal(
            Reason.CONFLICT,
            f"there is no release here: {MANIFEST} is missing",
            subject=str(root),
            do="name the folder that `flashrt publish-receipts --to` wrote",
        )
    has_envelope = os.path.lexists(root / ENVELOPE)
    if trust and (has_envelope or not allow_unsigned):
        if not has_envelope:
            raise Refusal(Reason.SIGNATURE, "the release is not signed", subject=str(root))
        payload = verify_envelope(_read(root, ENVELOPE), trust, ENVELOPE)
        if _read(root, MANIFEST) != payload:
            raise _refuse(Reason.SIGNATURE, "not the bytes that were signed", MANIFEST)
        return payload, True
    if not allow_unsigned:
        raise Refusal(
            Reason.SIGNATURE,
            "no trusted keys were given",
            subject=str(root),
            do="load(release, trust=[public_key]); allow_unsigned=True takes it on faith",
        )
    return _read(root, MANIFEST), False


def _files(root: Path, body: dict[str, Any]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in take(body, "files", list, MANIFEST):
        path = take(entry, "path", str, MANIFEST)
        if path in found:
            raise Refusal(Reason.CONFLICT, f"{path!r} is listed twice", subject=MANIFEST)
        data = _read(root, path)
        if sha256(data) != take(entry, "sha256", str, MANIFEST):
            raise _refuse(Reason.DIGEST, "the bytes are not the ones that were released", path)
        if len(data) != take(entry, "bytes", int, MANIFEST):
            raise _refuse(Reason.DIGEST, "the size is not the one that was released", path)
        found[path] = data
    return found


def _receipts(files: dict[str, bytes]) -> dict[str, dict[str, Any]]:
    found = {}
    for path, data in files.items():
        pure = PurePosixPath(path)
        if pure.parts[0] != "receipts" or pure.suffix != ".json":
            continue
        body = parse_object(data, path)
        digest = take(body, "digest", str, path)
        if digest != f"sha256:{pure.stem}":
            raise _refuse(Reason.DIGEST, f"holds {digest}", path)
        found[digest] = body
    return found


def _agree(route: Route, receipt: dict[str, Any], source: str) -> None:
    """A route says what its receipt says."""
    verdict = take(receipt, "verdict", dict, source)
    pairs = {
        "cell_digest": (route.cell_digest, take(receipt, "cell_digest", str, source)),
        "cell": (route.cell, take(receipt, "cell", dict, source)),
        "state": (route.state, take(verdict, "state", str, source)),
        "band": (route.band, take(verdict, "band", str, source)),
    }
    for name, (said, earned) in pairs.items():
        if said != earned:
            what = f"the route's {name} is not its receipt's"
            raise _refuse(Reason.DIGEST, what, source)


def _digests(record: dict[str, Any], name: str, source: str) -> list[str]:
    given = take(record, name, list, source) if name in record else []
    bad = [one for one in given if not is_digest(one)]
    if bad:
        raise Refusal(Reason.SCHEMA, f"{name}: {bad[0]!r} is no digest", subject=source)
    return list(given)


def read_release(
    root: Path, trust: Sequence[bytes | str] | None, allow_unsigned: bool = False
) -> ReleaseContent:
    """Read and check all of a release folder.

    Order: the signature over the manifest's bytes, the manifest, every listed file's digest and
    size, the receipts, the routes against their receipts. Raises :class:`Refusal`: SIGNATURE,
    DIGEST, SCHEMA, CONFLICT. Files that the manifest does not list are never opened.
    """
    data, signed = _manifest(root, trust, allow_unsigned)
    body = parse_object(data, MANIFEST)
    if take(body, "schema", str, MANIFEST) != SCHEMA:
        raise Refusal(Reason.SCHEMA, f"the schema is {body['schema']!r}", subject=MANIFEST)
    receipts = _receipts(_files(root, body))
    routes = []
    for index, record in enumerate(take(body, "routes", list, MANIFEST)):
        route = read_route(record, f"{MANIFEST}: $.routes[{index}]")
        if route.receipt not in receipts:
            what = f"the route's receipt {route.receipt} is not in the release"
            raise _refuse(Reason.DIGEST, what, MANIFEST)
        _agree(route, receipts[route.receipt], f"receipts/{route.receipt[7:]}.json")
        routes.append(route)
    revoked = set(_digests(body, "revokes", MANIFEST))
    superseded = set()
    for digest, receipt in receipts.items():
        revoked.update(_digests(receipt, "revokes", digest))
        if isinstance(receipt.get("supersedes"), str):
            superseded.add(receipt["supersedes"])
    return ReleaseContent(
        root=root,
        name=take(body, "name", str, MANIFEST),
        digest=sha256(data),
        signed=signed,
        routes=tuple(routes),
        receipts=receipts,
        revoked=frozenset(revoked),
        superseded=frozenset(superseded),
    )
