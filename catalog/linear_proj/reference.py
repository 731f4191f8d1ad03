"""linear_proj in plain torch, computed in float32 whatever the boundary's dtype, and its cost."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F


def reference(
    inputs: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    variant: Mapping[str, str],
) -> dict[str, torch.Tensor]:
    """The output ``y`` [..., N]; the point ``x`` [..., K] is the input itself."""
    x = inputs["x"]
    bias = weights["bias"].float() if variant["bias"] == "present" else None
    y = F.linear(x.float(), weights["weight"].float(), bias)
    return {"y": y.to(x.dtype), "x": x}


def cost(
    dims: Mapping[str, int],
    variant: Mapping[str, str],
    weight_bytes: float = 4.0,
    activation_bytes: float = 4.0,
) -> tuple[float, float]:
    """Fewest floating-point operations and bytes of one call over ``M`` rows.

    A multiply-add counts as two operations; weights are read once, ``x`` and ``y`` moved once.
    """
    rows, width, out = dims["M"], dims["K"], dims["N"]
    flops = 2.0 * rows * width * out + (rows * out if variant["bias"] == "present" else 0.0)
    return flops, width * out * weight_bytes + rows * (width + out) * activation_bytes
