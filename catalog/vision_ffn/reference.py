"""vision_ffn in plain torch, computed in float32 whatever the boundary's dtype, and its cost."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F


def reference(
    inputs: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    variant: Mapping[str, str],
) -> dict[str, torch.Tensor]:
    """The output ``y`` and the points ``x_after_norm`` and ``act_after_gelu``.

    ``x`` is [..., D]; the leading dims are kept. Statistics, products and sums are float32; every
    tensor returned has the dtype of ``x``.
    """
    dtype = inputs["x"].dtype
    held = {name: tensor.float() for name, tensor in weights.items()}
    x = inputs["x"].float()
    if variant["norm"] != "host":
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = centred.square().mean(dim=-1, keepdim=True)
        x = centred * torch.rsqrt(variance + float(variant["eps"]))
    if variant["norm"] == "layer_affine":
        x = x * held["norm"] + held["norm_bias"]
    exact = variant["activation"] == "gelu_erf"
    hidden = F.linear(x, held["fc1"], held["fc1_bias"])
    hidden = F.gelu(hidden, approximate="none" if exact else "tanh")
    y = F.linear(hidden, held["fc2"], held["fc2_bias"])
    if variant["layer_scale"] == "present":
        y = y * held["layer_scale"]
    if variant["residual"] == "add":
        y = inputs["residual"].float() + y
    return {
        "y": y.to(dtype),
        "x_after_norm": x.to(dtype),
        "act_after_gelu": hidden.to(dtype),
    }


def cost(
    dims: Mapping[str, int],
    variant: Mapping[str, str],
    weight_bytes: float = 4.0,
    activation_bytes: float = 4.0,
) -> tuple[float, float]:
    """Fewest floating-point operations and bytes of one call over ``M`` rows.

    A multiply-add counts as two operations, a tanh or error function as one. Each weight is read
    once and each boundary tensor is moved once; what a kernel keeps in registers or cache is free.
    Bytes are per element; vectors keep the activations' width whatever the matrices' format.
    """
    rows, width, hidden = dims["M"], dims["D"], dims["F"]
    gelu = 5.0 if variant["activation"] == "gelu_erf" else 8.0
    flops = rows * (4.0 * width * hidden + (gelu + 1.0) * hidden + width)
    vectors = hidden + width
    if variant["norm"] != "host":
        affine = variant["norm"] == "layer_affine"
        flops += rows * width * (7.0 if affine else 5.0)
        vectors += 2 * width if affine else 0
    if variant["layer_scale"] == "present":
        flops += 1.0 * rows * width
        vectors += width
    tensors = 2
    if variant["residual"] == "add":
        flops += 1.0 * rows * width
        tensors += 1
    moved = 2.0 * width * hidden * weight_bytes
    return flops, moved + (vectors + tensors * rows * width) * activation_bytes
