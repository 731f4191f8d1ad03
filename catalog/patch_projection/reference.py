"""patch_projection in plain torch, in float32 whatever the boundary's dtype, and its cost."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F


def reference(
    inputs: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    variant: Mapping[str, str],
) -> dict[str, torch.Tensor]:
    """The output ``y`` [..., N] of ``x`` [..., C*Pt*Ph*Pw], in the dtype of ``x``."""
    x = inputs["x"]
    bias = weights["bias"].float() if variant["bias"] == "present" else None
    y = F.linear(x.float(), weights["weight"].float().flatten(1), bias)
    return {"y": y.to(x.dtype)}


def cost(
    dims: Mapping[str, int],
    variant: Mapping[str, str],
    weight_bytes: float = 4.0,
    activation_bytes: float = 4.0,
) -> tuple[float, float]:
    """Fewest floating-point operations and bytes of one call over ``M`` rows.

    A multiply-add counts as two operations. Each weight is read once and each boundary tensor is
    moved once. Bytes are per element; the bias keeps the activations' width whatever the weight's
    format.
    """
    rows, out = dims["M"], dims["N"]
    patch = dims["C"] * dims["Pt"] * dims["Ph"] * dims["Pw"]
    biased = variant["bias"] == "present"
    flops = rows * out * (2.0 * patch + biased)
    moved = 1.0 * patch * out * weight_bytes
    return flops, moved + (biased * out + rows * (patch + out)) * activation_bytes
