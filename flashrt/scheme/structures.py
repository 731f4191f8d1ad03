"""Which structures a scheme may quantise, and which are fusions that no scheme is asked about."""

from __future__ import annotations

from flashrt.host.discovery.near_miss import (
    ADALN_PRODUCER,
    DECODER_FFN,
    LINEAR_PROJ,
    MODNORM_QKV_CHAIN,
    NORM_FUSED,
    PATCH_PROJECTION,
    QKV_PACK,
    VISION_FFN,
)

DENSE = (DECODER_FFN, LINEAR_PROJ, VISION_FFN)
FUSION = (
    *(QKV_PACK, PATCH_PROJECTION, NORM_FUSED, ADALN_PRODUCER, MODNORM_QKV_CHAIN),
    *("attention_core@1", "qk_norm_rope@1", "qkv_rope@1", "gated_delta_core@1"),
)
"""They quantise nothing, so they attach as usual under every scheme: a decision is not consulted.

``cadence_static`` is not here: it needs the host's own observation boundary and is attached by
hand. ``decoder_block`` is not either: its parts are decided one by one.
"""


def is_fusion(structure: str) -> bool:
    """Whether a structure (``name@version``) attaches whatever the scheme decides."""
    return structure in FUSION
