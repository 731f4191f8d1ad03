"""qkv_pack in plain torch, computed in float32 whatever the boundary's dtype, and its cost."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F


def reference(
    inputs: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    variant: Mapping[str, str],
) -> dict[str, torch.Tensor]:
    """Outputs ``q`` [..., Nq], ``k`` [..., Nk], ``v`` [..., Nv]; point ``x`` is the input."""
    x = inputs["x"]
    out = {"x": x}
    for role in ("q", "k", "v"):
        bias = weights[f"{role}_bias"].float() if variant["bias"] == "present" else None
        out[role] = F.linear(x.float(), weights[role].float(), bias).to(x.dtype)
    return out


def cost(
    dims: Mapping[str, int],
    variant: Mapping[str, str],
    weight_bytes: float = 4.0,
    activation_bytes: float = 4.0,
) -> tuple[float, float]:
    """Fewest floating-point operations and bytes of one call over ``M`` rows.

    A multiply-add counts as two operations; weights are read once, ``x`` is read once for all three
    and each output is written once.
    """
    rows, width = dims["M"], dims["D"]
    out = dims["Nq"] + dims["Nk"] + dims["Nv"]
    flops = 2.0 * rows * width * out + (rows * out if variant["bias"] == "present" else 0.0)
    return flops, width * out * weight_bytes + rows * (width + out) * activation_bytes
