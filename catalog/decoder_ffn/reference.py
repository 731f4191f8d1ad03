"""decoder_ffn in plain torch, computed in float32 whatever the boundary's dtype, and its cost."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F


def reference(
    inputs: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    variant: Mapping[str, str],
) -> dict[str, torch.Tensor]:
    """The output ``y`` and the points ``x_after_norm`` and ``act_after_mul``.

    ``x`` is [..., D]; the leading dims are kept. Statistics, products and sums are float32; every
    tensor returned has the dtype of ``x``.
    """
    dtype = inputs["x"].dtype
    wide = {name: tensor.float() for name, tensor in inputs.items()}
    held = {name: tensor.float() for name, tensor in weights.items()}
    x = wide["x"]
    if variant["norm"] != "host":
        mean_square = x.square().mean(dim=-1, keepdim=True)
        gain = held["norm"] + (1.0 if variant["norm"] == "rms_offset" else 0.0)
        x = x * torch.rsqrt(mean_square + float(variant["eps"])) * gain
    if variant["modulation"] == "adaln":
        x = x * (1.0 + wide["ada_scale"]) + wide["ada_shift"]
    gate = F.linear(x, held["gate"], held.get("gate_bias"))
    up = F.linear(x, held["up"], held.get("up_bias"))
    act = F.silu(gate) if variant["activation"] == "silu" else F.gelu(gate, approximate="tanh")
    hidden = act * up
    y = F.linear(hidden, held["down"], held.get("down_bias"))
    if variant["modulation"] == "adaln":
        y = y * wide["ada_gate"]
    if variant["residual"] == "add":
        y = wide["residual"] + y
    return {
        "y": y.to(dtype),
        "x_after_norm": x.to(dtype),
        "act_after_mul": hidden.to(dtype),
    }


def cost(
    dims: Mapping[str, int],
    variant: Mapping[str, str],
    weight_bytes: float = 4.0,
    activation_bytes: float = 4.0,
) -> tuple[float, float]:
    """Fewest floating-point operations and bytes of one call over ``M`` rows.

    A multiply-add counts as two operations. Each weight is read once and each boundary tensor is
    moved once; what a kernel keeps in registers or cache is free. Bytes are per element.
    """
    rows, width, hidden = dims["M"], dims["D"], dims["F"]
    flops = 6.0 * rows * width * hidden + 8.0 * rows * hidden
    tensors = 2 + (variant["residual"] == "add")
    if variant["norm"] != "host":
        flops += 4.0 * rows * width
    if variant["modulation"] == "adaln":
        flops += 3.0 * rows * width
        tensors += 3
    if variant["residual"] == "add":
        flops += 1.0 * rows * width
    moved = 3.0 * width * hidden * weight_bytes + tensors * rows * width * activation_bytes
    return flops, moved
