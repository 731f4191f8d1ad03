"""adaln_producer in plain torch, in float32 whatever the boundary's dtype, and its cost."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F


def reference(
    inputs: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    variant: Mapping[str, str],
) -> dict[str, torch.Tensor]:
    """The output ``tables`` [..., P, D] of ``cond`` [..., C], in the dtype of ``cond``.

    P is the ``base`` table's first axis, or ``table_count`` where there is no base.
    """
    cond = inputs["cond"].float()
    if variant["activation"] == "silu":
        cond = F.silu(cond)
    bias = weights["bias"].float() if variant["bias"] == "present" else None
    flat = F.linear(cond, weights["weight"].float(), bias)
    if variant["base"] == "added":
        base = weights["base"].float()
        tables = flat.unflatten(-1, tuple(base.shape)) + base
    else:
        tables = flat.unflatten(-1, (int(variant["table_count"]), -1))
    return {"tables": tables.to(inputs["cond"].dtype)}


def cost(
    dims: Mapping[str, int],
    variant: Mapping[str, str],
    weight_bytes: float = 4.0,
    activation_bytes: float = 4.0,
) -> tuple[float, float]:
    """Fewest floating-point operations and bytes of one call over ``S`` rows.

    A multiply-add counts as two operations, an exponential as one. Each weight is read once and
    each boundary tensor is moved once. Bytes are per element; vectors and the base table keep the
    activations' width whatever the matrix's format.
    """
    rows, width, out = dims["S"], dims["C"], dims["P"] * dims["D"]
    added = (variant["bias"] == "present") + (variant["base"] == "added")
    flops = rows * out * (2.0 * width + added)
    if variant["activation"] == "silu":
        flops += 4.0 * rows * width
    moved = 1.0 * width * out * weight_bytes
    return flops, moved + (added * out + rows * (width + out)) * activation_bytes
