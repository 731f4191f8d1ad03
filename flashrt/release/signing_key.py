"""Ed25519 signing keys: made once, never overwritten, readable by their owner only."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flashrt.document.canonical import sha256
from flashrt.document.problem import InputError
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MAX_BYTES = 64 * 1024


@dataclass(frozen=True)
class PublicKey:
    """A public key: its 32 raw bytes, and their digest as its id."""

    raw: bytes

    @property
    def id(self) -> str:
        """``sha256:<hex>`` of the raw key."""
        return sha256(self.raw)

    def pem(self) -> bytes:
        """SubjectPublicKeyInfo PEM."""
        from cryptography.hazmat.primitives import serialization as s
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        key = Ed25519PublicKey.from_public_bytes(self.raw)
        return key.public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)


def public_of(private: Ed25519PrivateKey) -> PublicKey:
    """The public half of a private key."""
    from cryptography.hazmat.primitives import serialization as s

    return PublicKey(private.public_key().public_bytes(s.Encoding.Raw, s.PublicFormat.Raw))


def public_path(path: Path) -> Path:
    """Where the public half lies: beside the private key, with ``.pub`` added."""
    return path.with_name(path.name + ".pub")


def _create(path: Path, data: bytes, mode: int) -> None:
    """Create a file that was not there, with its mode from the first byte on."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        if os.path.lexists(path):
            raise Refusal(
                Reason.CONFLICT,
                "a file is already there, and a key is never overwritten",
                subject=str(path),
                do="choose another path",
            ) from error
        raise Refusal(
            Reason.STORAGE, f"cannot write: {error.strerror}", subject=str(path)
        ) from error
    try:
        with os.fdopen(handle, "wb") as stream:
            os.fchmod(stream.fileno(), mode)  # the umask may only have taken rights away
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise Refusal(
            Reason.STORAGE, f"cannot write: {error.strerror}", subject=str(path)
        ) from error


def _passphrase(path: Path | None) -> bytes | None:
    if path is None:
        return None
    secret = _read(path).rstrip(b"\r\n")
    if not secret:
        raise InputError(str(path), 1, "$", "the passphrase is empty")
    return secret


def _read(path: Path) -> bytes:
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(str(path), 1, "$", error.strerror or str(error)) from error
    if len(data) > MAX_BYTES:
        raise InputError(str(path), 1, "$", f"over {MAX_BYTES} bytes: this is no key")
    return data


def new_key(path: Path, passphrase_file: Path | None = None) -> PublicKey:
    """Write a private key (PEM, PKCS#8, mode 0600) and its public half beside it.

    Raises :class:`Refusal` (CONFLICT) when either file exists, (STORAGE) when one cannot be
    written; then neither is left behind.
    """
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    secret = _passphrase(passphrase_file)
    locked: s.KeySerializationEncryption = (
        s.BestAvailableEncryption(secret) if secret else s.NoEncryption()
    )
    private = Ed25519PrivateKey.generate()
    public = public_of(private)
    pem = private.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, locked)
    _create(path, pem, 0o600)
    try:
        _create(public_path(path), public.pem(), 0o644)
    except Refusal:
        path.unlink()
        raise
    return public


def load_private(path: Path, passphrase_file: Path | None = None) -> Ed25519PrivateKey:
    """A private key from PEM; :class:`InputError` for anything else or a wrong passphrase."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = _read(path)
    if path.stat().st_mode & 0o077:
        raise InputError(
            str(path),
            1,
            "$",
            "others can read this private key",
            f"run `chmod 600 {path.name}`, or make a new key if it may have been copied",
            reason=Reason.SIGNATURE,
        )
    try:
        key = load_pem_private_key(data, _passphrase(passphrase_file))
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        locked = b"ENCRYPTED" in data
        what = "wrong or missing passphrase" if locked else "not a private key in PEM"
        do = "give --passphrase-file" if locked and passphrase_file is None else ""
        raise InputError(str(path), 1, "$", what, do, reason=Reason.SIGNATURE) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(
            str(path),
            1,
            "$",
            "not an ed25519 key",
            "make one with `flashrt keys new PATH`",
            reason=Reason.SIGNATURE,
        )
    return key


def load_public(path: Path) -> PublicKey:
    """A public key from PEM. Raises :class:`InputError` for anything else."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = s.load_pem_public_key(_read(path))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(
            str(path),
            1,
            "$",
            "not a public key in PEM",
            "give the .pub file",
            reason=Reason.SIGNATURE,
        ) from error
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(str(path), 1, "$", "not an ed25519 key", reason=Reason.SIGNATURE)
    return PublicKey(key.public_bytes(s.Encoding.Raw, s.PublicFormat.Raw))


def load_any(path: Path, passphrase_file: Path | None = None) -> PublicKey:
    """The public half of whichever key is in the file. Raises :class:`InputError`."""
    if b"PRIVATE KEY" in _read(path):
        return public_of(load_private(path, passphrase_file))
    return load_public(path)
