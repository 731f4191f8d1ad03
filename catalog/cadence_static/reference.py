"""cadence_static in plain torch, in float32 whatever the boundary's dtype, and its cost."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F

ADDRESS_BYTES = 8.0


def reference(
    inputs: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    variant: Mapping[str, str],
) -> dict[str, torch.Tensor]:
    """Outputs ``buffer.0`` … ``buffer.{P-1}``, each [..., N].

    A refresh computes each from ``source`` [..., C], in the source's dtype; a read returns the
    buffers it was given, bit for bit.
    """
    if variant["phase"] == "read":
        return {name: t for name, t in inputs.items() if name.startswith("buffer.")}
    source = inputs["source"]
    out = {}
    for p in range(sum(name.startswith("weight.") for name in weights)):
        bias = weights[f"bias.{p}"].float() if variant["bias"] == "present" else None
        made = F.linear(source.float(), weights[f"weight.{p}"].float(), bias)
        out[f"buffer.{p}"] = made.to(source.dtype)
    return out


def cost(
    dims: Mapping[str, int],
    variant: Mapping[str, str],
    weight_bytes: float = 4.0,
    activation_bytes: float = 4.0,
) -> tuple[float, float]:
    """Fewest floating-point operations and bytes of one call over ``M`` rows.

    A refresh reads the source once for all producers and every weight once; vectors keep the
    activations' width. A read moves no tensor: it hands over one address of eight bytes for each
    buffer.
    """
    rows, width, out = dims["M"], dims["C"], dims["P"] * dims["N"]
    if variant["phase"] == "read":
        return 0.0, ADDRESS_BYTES * dims["P"]
    flops, vectors = 2.0 * rows * width * out, 0
    if variant["bias"] == "present":
        flops += rows * out
        vectors = out
    moved = rows * (width + out) + vectors
    return flops, width * out * weight_bytes + moved * activation_bytes
