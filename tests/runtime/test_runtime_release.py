"""A release is believed by its signature, checked by its digests, and read strictly."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import flashrt_runtime
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.strict_json import canonical_digest, parse
from flashrt_runtime.trust import trusted_key


def refused(reason: Reason, act: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        act()
    assert caught.value.reason is reason, str(caught.value)
    return caught.value


@pytest.fixture
def folder(maker: Any) -> Path:
    """A good signed release of one route."""
    maker.add()
    path: Path = maker.write()
    return path


@pytest.mark.parametrize("shape", ["raw", "hex", "pem text", "pem bytes"])
def test_a_signed_release_is_read_with_the_key_in_any_form(
    maker: Any, folder: Path, shape: str
) -> None:
    pem = maker.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    keys = {"raw": maker.public, "hex": maker.public.hex(), "pem bytes": pem}
    release = flashrt_runtime.load(folder, trust=[keys.get(shape, pem.decode())])
    assert release.signed
    assert (release.name, len(release.routes)) == ("tiny", 1)
    assert release.digest.startswith("sha256:")


def test_unsigned_needs_to_be_allowed(maker: Any) -> None:
    maker.add()
    path = maker.write(sign=False)
    refused(Reason.SIGNATURE, lambda: flashrt_runtime.load(path))
    refused(Reason.SIGNATURE, lambda: flashrt_runtime.load(path, trust=[]))
    refused(Reason.SIGNATURE, lambda: flashrt_runtime.load(path, trust=[maker.public]))
    assert not flashrt_runtime.load(path, allow_unsigned=True).signed
    assert not flashrt_runtime.load(path, trust=[maker.public], allow_unsigned=True).signed


def test_a_signature_by_another_key_is_refused(maker: Any, folder: Path) -> None:
    other = Ed25519PrivateKey.generate()
    key = other.public_key().public_bytes_raw()
    refusal = refused(Reason.SIGNATURE, lambda: flashrt_runtime.load(folder, trust=[key]))
    assert "not trusted" in refusal.what
    # The key's name is a hint: claiming a trusted one does not help.
    data = (folder / "release.json").read_bytes()
    maker.sign(data, other, keyid=trusted_key(maker.public).keyid)
    refusal = refused(Reason.SIGNATURE, lambda: flashrt_runtime.load(folder, trust=[maker.public]))
    assert "does not fit" in refusal.what
    assert refused(
        Reason.SIGNATURE,
        lambda: flashrt_runtime.load(folder, trust=[maker.public], allow_unsigned=True),
    )


def edit_envelope(folder: Path, **changes: Any) -> None:
    path = folder / "release.dsse.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"payload": base64.b64encode(b"{}").decode()}, Reason.SIGNATURE),
        ({"payload": "***"}, Reason.SIGNATURE),
        ({"payloadType": "application/json"}, Reason.SIGNATURE),
        ({"signatures": []}, Reason.SIGNATURE),
        ({"signatures": [{"keyid": "a", "sig": "AAAA"}]}, Reason.SIGNATURE),
        ({"signatures": [{"keyid": "a"}]}, Reason.SCHEMA),
        ({"signatures": "none"}, Reason.SCHEMA),
    ],
)
def test_an_edited_envelope_is_refused(
    maker: Any, folder: Path, changes: Any, reason: Reason
) -> None:
    edit_envelope(folder, **changes)
    refused(reason, lambda: flashrt_runtime.load(folder, trust=[maker.public]))


def test_the_payload_is_not_parsed_before_its_signature_is_good(maker: Any, folder: Path) -> None:
    hostile = b'{"a": NaN'
    (folder / "release.json").write_bytes(hostile)
    edit_envelope(folder, payload=base64.b64encode(hostile).decode())
    refused(Reason.SIGNATURE, lambda: flashrt_runtime.load(folder, trust=[maker.public]))
    maker.sign(hostile)
    refused(Reason.SCHEMA, lambda: flashrt_runtime.load(folder, trust=[maker.public]))


def test_a_manifest_beside_the_signed_one_is_refused(maker: Any, folder: Path) -> None:
    with open(folder / "release.json", "ab") as handle:
        handle.write(b"\n")
    refusal = refused(Reason.SIGNATURE, lambda: flashrt_runtime.load(folder, trust=[maker.public]))
    assert refusal.subject == "release.json"


@pytest.mark.parametrize("change", ["edit", "grow", "remove", "link", "folder"])
def test_a_changed_file_is_refused(maker: Any, folder: Path, change: str, tmp_path: Path) -> None:
    path = next((folder / "receipts").iterdir())
    data = path.read_bytes()
    path.unlink()
    if change == "edit":
        path.write_bytes(data.replace(b"certified_fast", b"certified_FAST"))
    elif change == "grow":
        path.write_bytes(data + b" ")
    elif change == "link":
        (tmp_path / "outside").write_bytes(data)
        path.symlink_to(tmp_path / "outside")
    elif change == "folder":
        path.mkdir()
    refused(Reason.DIGEST, lambda: flashrt_runtime.load(folder, trust=[maker.public]))


def test_a_linked_folder_is_refused(maker: Any, folder: Path, tmp_path: Path) -> None:
    (folder / "receipts").rename(tmp_path / "elsewhere")
    (folder / "receipts").symlink_to(tmp_path / "elsewhere")
    refusal = refused(Reason.DIGEST, lambda: flashrt_runtime.load(folder, trust=[maker.public]))
    assert "link" in refusal.what


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/hostname", "a/../../secret", "a\\b", "./a", "a//b", "", "a\0b"]
)
def test_paths_that_leave_the_folder_are_refused(maker: Any, path: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    maker.add()
    files = [{"path": path, "sha256": "sha256:" + "0" * 64, "bytes": 1}]
    root = maker.write(files=files)
    refused(Reason.DIGEST, lambda: flashrt_runtime.load(root, trust=[maker.public]))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": "flashrt.release/2"}, Reason.SCHEMA),
        ({"name": 3}, Reason.SCHEMA),
        ({"routes": {}}, Reason.SCHEMA),
        ({"routes": [1]}, Reason.SCHEMA),
        ({"files": []}, Reason.DIGEST),
        ({"files": [{"path": "a"}]}, Reason.DIGEST),
        ({"revokes": ["not a digest"]}, Reason.SCHEMA),
    ],
)
def test_manifests_that_are_none_are_refused(maker: Any, changes: Any, reason: Reason) -> None:
    maker.add()
    root = maker.write(**changes)
    refused(reason, lambda: flashrt_runtime.load(root, trust=[maker.public]))


def test_a_file_listed_twice_is_refused(maker: Any, folder: Path) -> None:
    files = json.loads((folder / "release.json").read_text())["files"]
    maker.write(files=files * 2)
    refused(Reason.CONFLICT, lambda: flashrt_runtime.load(folder, trust=[maker.public]))


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("cell_digest", "sha256:" + "0" * 64, Reason.DIGEST),
        ("receipt", "sha256:" + "0" * 64, Reason.DIGEST),
        ("receipt", "latest", Reason.SCHEMA),
        ("band", "warn", Reason.DIGEST),
        ("state", "supported_correct", Reason.DIGEST),
        ("state", "unknown", Reason.SCHEMA),
        ("rank", True, Reason.SCHEMA),
        ("seams", [{}], Reason.SCHEMA),
        ("cell", {}, Reason.SCHEMA),
    ],
)
def test_a_route_that_is_not_its_receipts_is_refused(
    maker: Any, field: str, value: Any, reason: Reason
) -> None:
    maker.add()
    maker.routes[0][field] = value
    root = maker.write()
    refused(reason, lambda: flashrt_runtime.load(root, trust=[maker.public]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rows", [1]), ("rows", [0, 1]), ("scales", {"x": 0}), ("scales", {"x": "1"}),
        ("impl", {"structure": "a@1"}), ("impl", {"structure": 1, "backend": "b", "form": "f"}),
    ],
)  # fmt: skip
def test_a_seam_that_is_none_is_refused(maker: Any, field: str, value: Any) -> None:
    maker.add()
    maker.routes[0]["seams"][0][field] = value
    root = maker.write()
    refused(Reason.SCHEMA, lambda: flashrt_runtime.load(root, trust=[maker.public]))


def test_an_edited_cell_is_caught_without_a_signature(maker: Any) -> None:
    maker.add()
    maker.routes[0]["cell"] = maker.cell(calibration="sha256:" + "1" * 64)
    root = maker.write(sign=False)
    refused(Reason.DIGEST, lambda: flashrt_runtime.load(root, allow_unsigned=True))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for given in ({"allow_unsigned": True}, {"trust": [b"k" * 32]}):
        refused(Reason.CONFLICT, lambda given=given: flashrt_runtime.load(tmp_path / "no", **given))


@pytest.mark.parametrize(
    "data",
    [b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":1e999}', b"\xff", b"[" * 100_000, b"", b"[1"],
)
def test_json_from_strangers_is_read_strictly(data: bytes) -> None:
    refused(Reason.SCHEMA, lambda: parse(data, "release.json"))


@pytest.mark.parametrize(
    "key", [b"short", "zz" * 32, "ab" * 31, "-----BEGIN PUBLIC KEY-----\nAAAA", "not hex"]
)
def test_keys_that_cannot_be_read_are_refused(key: Any) -> None:
    refused(Reason.SIGNATURE, lambda: trusted_key(key))


def test_keys_of_another_kind_are_refused() -> None:
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert "ed25519" in refused(Reason.SIGNATURE, lambda: trusted_key(pem)).what


def test_cell_digests_are_those_of_rfc_8785() -> None:
    import rfc8785

    from flashrt_runtime.strict_json import sha256

    cell: Any = {"b": [1, {"z": None, "é": True}], "a": "\n\u2028😀", "\U0001f600": 1, "\ue000": 2}
    assert canonical_digest(cell, "cell") == sha256(rfc8785.dumps(cell))
    refused(Reason.SCHEMA, lambda: canonical_digest({"a": [1.5]}, "cell"))
    refused(Reason.SCHEMA, lambda: canonical_digest({"a": "\ud800"}, "cell"))
