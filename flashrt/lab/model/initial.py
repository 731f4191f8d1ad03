"""Weights before training."""

from __future__ import annotations

import torch

from flashrt.lab.model.layout import tensors
from flashrt.lab.records import ModelArchitecture


def initial_weights(shape: ModelArchitecture, seed: int) -> dict[str, torch.Tensor]:
    """Stacked float32 tensors: normal weights, ones for gains, zeros for biases.

    Maps that write to the residual stream are smaller by the root of how many of them there are.
    The generator is the call's own: no global seed is read or set.
    """
    generator = torch.Generator().manual_seed(seed)
    made: dict[str, torch.Tensor] = {}
    for plan in tensors(shape):
        if plan.name.endswith(".bias"):
            made[plan.name] = torch.zeros(plan.shape)
        elif plan.operation == "Normalization":
            made[plan.name] = torch.ones(plan.shape)
        else:
            writes = plan.name.endswith((".o.weight", ".fc2.weight"))
            scale = 0.02 * (2 * shape.layers) ** -0.5 if writes else 0.02
            made[plan.name] = torch.randn(plan.shape, generator=generator) * scale
    return made
