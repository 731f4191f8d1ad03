"""Signing a release: a DSSE envelope over the manifest's exact bytes.

The runtime holds the other half (``flashrt_runtime.trust``), and the encoding that both share.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from flashrt.release.signing_key import public_of
from flashrt_runtime.trust import PAYLOAD_TYPE, pae

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def seal_envelope(payload: bytes, private: Ed25519PrivateKey) -> dict[str, Any]:
    """The envelope of a payload with one signature; same key and bytes, same envelope."""
    signature = private.sign(pae(PAYLOAD_TYPE, payload))
    return {
        "payloadType": PAYLOAD_TYPE,
        "payload": b64encode(payload).decode(),
        "signatures": [{"keyid": public_of(private).id, "sig": b64encode(signature).decode()}],
    }
