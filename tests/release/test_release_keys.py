"""Signing keys and the envelope."""

import os
import stat
from base64 import b64decode, b64encode

import pytest
from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from flashrt.document.canonical import canonical_bytes
from flashrt.document.problem import InputError
from flashrt.release import signing_key as keys
from flashrt.release.envelope import seal_envelope
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.trust import PAYLOAD_TYPE, pae, verify_envelope


def test_new_key_is_private_and_reloads(tmp_path):
    path = tmp_path / "deep" / "k"
    public = keys.new_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keys.public_of(keys.load_private(path)) == public
    assert keys.load_public(keys.public_path(path)) == public == keys.load_any(path)
    assert public.id.startswith("sha256:")


def test_mode_does_not_depend_on_the_umask(tmp_path):
    before = os.umask(0o377)
    try:
        keys.new_key(tmp_path / "k")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "k").stat().st_mode) == 0o600


@pytest.mark.parametrize("occupied", ["k", "k.pub"])
def test_a_key_is_never_overwritten(tmp_path, occupied):
    (tmp_path / occupied).write_text("mine")
    with pytest.raises(Refusal) as refused:
        keys.new_key(tmp_path / "k")
    assert refused.value.reason is Reason.CONFLICT
    assert (tmp_path / occupied).read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == [occupied]


def test_a_folder_that_cannot_be_written_is_storage(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Refusal) as refused:
        keys.new_key(tmp_path / "file" / "k")
    assert refused.value.reason is Reason.STORAGE


def test_passphrase(tmp_path):
    secret, wrong = tmp_path / "p", tmp_path / "w"
    secret.write_text("correct horse\n")
    wrong.write_text("battery")
    public = keys.new_key(tmp_path / "k", secret)
    assert b"ENCRYPTED" in (tmp_path / "k").read_bytes()
    assert keys.load_any(tmp_path / "k", secret) == public
    for other in (None, wrong):
        with pytest.raises(InputError, match="passphrase"):
            keys.load_private(tmp_path / "k", other)


def test_empty_passphrase_is_refused(tmp_path):
    (tmp_path / "p").write_text("\n")
    with pytest.raises(InputError, match="empty"):
        keys.new_key(tmp_path / "k", tmp_path / "p")
    assert not (tmp_path / "k").exists()


def test_a_key_that_others_can_read_is_refused(tmp_path):
    keys.new_key(tmp_path / "k")
    (tmp_path / "k").chmod(0o644)
    with pytest.raises(InputError, match="others can read"):
        keys.load_private(tmp_path / "k")


def test_wrong_files_are_refused(tmp_path):
    path = tmp_path / "k"
    other = generate_private_key(SECP256R1())
    pem = other.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    public = other.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    for data in (b"", b"rubbish", pem, b"-----BEGIN PRIVATE KEY-----\nAAAA\n", bytes(100_000)):
        path.write_bytes(data)
        path.chmod(0o600)
        with pytest.raises(InputError):
            keys.load_private(path)
    for data in (b"", b"rubbish", public):
        path.write_bytes(data)
        with pytest.raises(InputError):
            keys.load_public(path)
    with pytest.raises(InputError):
        keys.load_public(tmp_path / "absent")


def test_pae_is_the_specified_encoding():
    # The example of the DSSE specification.
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_the_runtime_opens_what_we_seal_and_nothing_edited():
    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    sealed = seal_envelope(b'{"a":1}', key)
    trusted = [keys.public_of(other).raw, keys.public_of(key).raw]
    assert verify_envelope(canonical_bytes(sealed), trusted, "f") == b'{"a":1}'
    assert sealed == seal_envelope(b'{"a":1}', key)
    assert sealed["payloadType"] == PAYLOAD_TYPE
    signature = b64decode(sealed["signatures"][0]["sig"])
    flipped = b64encode(bytes([signature[0] ^ 1]) + signature[1:]).decode()
    edits = [
        {"payload": b64encode(b'{"a":2}').decode()},
        {"payloadType": "application/json"},
        {"signatures": []},
        {"signatures": [{"keyid": sealed["signatures"][0]["keyid"], "sig": flipped}]},
    ]
    for edit in edits:
        with pytest.raises(Refusal) as refused:
            verify_envelope(canonical_bytes({**sealed, **edit}), trusted, "f")
        assert refused.value.reason is Reason.SIGNATURE
