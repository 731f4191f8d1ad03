"""qkv_rope in plain torch, computed in float32 whatever the boundary's dtype, and its cost."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def reference(
    inputs: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    variant: Mapping[str, str],
) -> dict[str, torch.Tensor]:
    """The outputs ``q``, ``k`` and ``v`` [..., H, Dh] of ``qkv`` [..., 3*H*Dh], in its dtype.

    ``cos`` and ``sin`` are [..., Dh] with the leading dims of ``qkv``. Sums and rotations are
    float32.
    """
    packed = inputs["qkv"].float()
    if variant["bias"] == "present":
        packed = packed + weights["bias"].float()
    cos, sin = (inputs[name].float().unsqueeze(-2) for name in ("cos", "sin"))
    out = {}
    for name, part in zip("qkv", packed.chunk(3, dim=-1), strict=True):
        heads = part.unflatten(-1, (-1, cos.shape[-1]))
        if name != "v":
            first, second = heads.chunk(2, dim=-1)
            heads = heads * cos + torch.cat([-second, first], dim=-1) * sin
        out[name] = heads.to(inputs["qkv"].dtype)
    return out


def cost(
    dims: Mapping[str, int],
    variant: Mapping[str, str],
    weight_bytes: float = 4.0,
    activation_bytes: float = 4.0,
) -> tuple[float, float]:
    """Fewest floating-point operations and bytes of one call over ``M`` rows.

    Queries, keys and float32 tables are read once, and what changes is written once; without a
    bias the values are a view and move nothing. Bytes are per element; there is no matrix, and the
    bias keeps the activations' width.
    """
    rows, width = dims["M"], dims["H"] * dims["Dh"]
    biased = variant["bias"] == "present"
    flops = rows * width * (6.0 + 3.0 * biased)
    tables = 2.0 * rows * dims["Dh"] * 4.0
    moved = rows * width * (6.0 if biased else 4.0) + (3.0 * width if biased else 0.0)
    return flops, tables + moved * activation_bytes
