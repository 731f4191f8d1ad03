"""Proof of origin: an ed25519 signature in a DSSE envelope, checked before anything is parsed."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.strict_json import parse_object, take

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

PAYLOAD_TYPE = "application/vnd.flashrt.release+json"


@dataclass(frozen=True)
class TrustedKey:
    """A public key that the caller trusts. ``keyid`` is the sha256 of its 32 raw bytes, in hex."""

    keyid: str
    public: Ed25519PublicKey


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: the bytes that are signed."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def _raw(given: bytes | str) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_public_key,
    )

    data = given.encode("utf-8") if isinstance(given, str) else bytes(given)
    if len(data) == 32 and not isinstance(given, str):
        return data
    if b"-----BEGIN" in data:
        key = load_pem_public_key(data)
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError(f"a {type(key).__name__}, not an ed25519 public key")
        return key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    raw = bytes.fromhex(data.decode("ascii").strip())
    if len(raw) != 32:
        raise ValueError(f"{len(raw)} bytes, not 32")
    return raw


def trusted_key(given: bytes | str) -> TrustedKey:
    """A key from 32 raw bytes, PEM (bytes or text) or hex. Raises :class:`Refusal` (SIGNATURE)."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        raw = _raw(given)
        public = Ed25519PublicKey.from_public_bytes(raw)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        what = f"a trusted key cannot be read: {error}"
        raise Refusal(
            Reason.SIGNATURE, what, do="give 32 raw bytes, PEM or 64 hex digits"
        ) from error
    return TrustedKey(hashlib.sha256(raw).hexdigest(), public)


def _decode(text: str, source: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refusal(Reason.SIGNATURE, f"not base64: {error}", subject=source) from error


def _verifies(key: TrustedKey, signature: bytes, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.public.verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _signatures(envelope: dict[str, Any], source: str) -> list[tuple[str, bytes]]:
    found = []
    for entry in take(envelope, "signatures", list, source):
        keyid = take(entry, "keyid", str, source).removeprefix("sha256:")
        found.append((keyid, _decode(take(entry, "sig", str, source), source)))
    return found


def verify_envelope(data: bytes, trust: Sequence[bytes | str], source: str) -> bytes:
    """The payload of a DSSE envelope that a trusted key signed.

    Only the envelope is parsed; the payload is returned as bytes once a signature over exactly
    those bytes verifies. Raises :class:`Refusal`: SIGNATURE when no trusted key signed it or a
    signature by one is broken, SCHEMA when the envelope is not one.
    """
    keys = [trusted_key(given) for given in trust]
    if not keys:
        raise Refusal(Reason.SIGNATURE, "no trusted key was given", subject=source)
    envelope = parse_object(data, source)
    payload_type = take(envelope, "payloadType", str, source)
    if payload_type != PAYLOAD_TYPE:
        raise Refusal(Reason.SIGNATURE, f"signed as {payload_type!r}", subject=source)
    payload = _decode(take(envelope, "payload", str, source), source)
    signatures = _signatures(envelope, source)
    message = pae(payload_type, payload)
    if any(_verifies(key, sig, message) for key in keys for _, sig in signatures):
        return payload
    named = {keyid for keyid, _ in signatures}
    known = sorted(named & {key.keyid for key in keys})
    if known:
        what = f"the signature by {known[0][:16]} does not fit the bytes"
    elif named:
        what = f"signed by {', '.join(sorted(k[:16] for k in named))}, which is not trusted"
    else:
        what = "there is no signature"
    raise Refusal(
        Reason.SIGNATURE, what, subject=source, do="get the release and the key from their owner"
    )
