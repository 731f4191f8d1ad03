"""modnorm_qkv_chain in plain torch, in float32 whatever the boundary's dtype, and its cost."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F


def reference(
    inputs: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    variant: Mapping[str, str],
) -> dict[str, torch.Tensor]:
    """Outputs ``q`` [..., T, Nq] and, in self-attention, ``k`` and ``v``; the point too.

    ``x`` is [..., T, D]; ``scale`` and ``shift`` have its leading dims and T rows or one. Mean,
    variance, modulation and products are float32; what is returned has the dtype of ``x``.
    """
    x = inputs["x"]
    positions, width = x.shape[-2:]
    wide = x.float().reshape(-1, positions, width)
    scale = inputs["scale"].float().reshape(len(wide), -1, width)
    shift = inputs["shift"].float().reshape(len(wide), -1, width)
    centred = wide - wide.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    normed = centred * torch.rsqrt(variance + float(variant["eps"]))
    if variant["norm"] == "layer_affine":
        normed = normed * weights["norm"].float() + weights["norm_bias"].float()
    modulated = (normed * (1.0 + scale) + shift).reshape(x.shape)
    out = {"x_after_modulation": modulated.to(x.dtype)}
    for role in ("q", "k", "v") if variant["attention"] == "self" else ("q",):
        bias = weights[f"{role}_bias"].float() if variant["bias"] == "present" else None
        out[role] = F.linear(modulated, weights[role].float(), bias).to(x.dtype)
    return out


def cost(
    dims: Mapping[str, int],
    variant: Mapping[str, str],
    weight_bytes: float = 4.0,
    activation_bytes: float = 4.0,
) -> tuple[float, float]:
    """Fewest floating-point operations and bytes of one call over ``B`` rows of ``T`` positions.

    A multiply-add counts as two operations. The norm takes five an element (sum, subtraction,
    squared sum, scale), its own affine and the modulation two each. Weights are read once, ``x`` is
    read once for all projections; ``scale`` and ``shift`` are counted at one row each of ``B``,
    their least. Vectors keep the activations' width.
    """
    width, rows = dims["D"], dims["B"] * dims["T"]
    affine = variant["norm"] == "layer_affine"
    out = dims["Nq"]
    if variant["attention"] == "self":
        out += dims["Nk"] + dims["Nv"]
    flops = rows * width * (7.0 + 2.0 * affine) + 2.0 * rows * width * out
    moved = rows * (width + out) + 2 * dims["B"] * width + 2 * width * affine
    if variant["bias"] == "present":
        flops += rows * out
        moved += out
    return flops, width * out * weight_bytes + moved * activation_bytes
