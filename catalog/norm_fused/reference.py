"""norm_fused in plain torch, computed in float32, and its cost."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def reference(
    inputs: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    variant: Mapping[str, str],
) -> dict[str, torch.Tensor]:
    """The output and point ``y`` and, where ``residual`` is ``add``, the output ``sum``.

    ``x`` is [..., D]; the leading dims are kept. Everything returned is float32.
    """
    out: dict[str, torch.Tensor] = {}
    x = inputs["x"].float()
    if variant["residual"] == "add":
        x = x + inputs["residual"].float()
        out["sum"] = x
    if variant["norm"] in ("layer_affine", "layer_identity"):
        x = x - x.mean(dim=-1, keepdim=True)
    y = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + float(variant["eps"]))
    if variant["norm"] != "layer_identity":
        y = y * (weights["weight"].float() + (1.0 if variant["norm"] == "rms_offset" else 0.0))
    if variant["norm"] == "layer_affine":
        y = y + weights["bias"].float()
    return {"y": y, **out}


def cost(
    dims: Mapping[str, int],
    variant: Mapping[str, str],
    weight_bytes: float = 4.0,
    activation_bytes: float = 4.0,
) -> tuple[float, float]:
    """Fewest floating-point operations and bytes of one call over ``M`` rows.

    Each boundary tensor is moved once; what a kernel keeps in registers or cache is free. Bytes
    are per element; there is no matrix, and vectors keep the activations' width.
    """
    rows, width = dims["M"], dims["D"]
    each = {"rms_direct": 4.0, "rms_offset": 4.0, "layer_affine": 7.0, "layer_identity": 5.0}
    vectors = {"rms_direct": 1, "rms_offset": 1, "layer_affine": 2, "layer_identity": 0}
    added = variant["residual"] == "add"
    flops = rows * width * (each[variant["norm"]] + added)
    tensors = 4 if added else 2
    return flops, (vectors[variant["norm"]] + tensors * rows) * width * activation_bytes
