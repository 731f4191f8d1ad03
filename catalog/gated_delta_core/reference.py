"""gated_delta_core in plain torch, in float32 whatever the boundary's dtype, and its cost."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

L2_EPS = 1e-6


def _l2(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + L2_EPS)


def reference(
    inputs: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    variant: Mapping[str, str],
) -> dict[str, torch.Tensor]:
    """Outputs ``y`` [..., T, H, Dv] in the dtype of ``v`` and ``final_state`` [..., H, Dk, Dv].

    ``q`` and ``k`` are [..., T, Hk, Dk], ``v`` [..., T, H, Dv], ``g`` and ``beta`` [..., T, H]. One
    position after another, float32 throughout; ``state`` is read and not written.
    """
    q, k, v = (inputs[name].float() for name in ("q", "k", "v"))
    if variant["qk_norm"] == "l2":
        q, k = _l2(q), _l2(k)
    group = v.shape[-2] // k.shape[-2]
    q = q.repeat_interleave(group, dim=-2) / math.sqrt(q.shape[-1])
    k = k.repeat_interleave(group, dim=-2)
    decay, beta = inputs["g"].float().exp(), inputs["beta"].float()
    lead, (positions, heads, width) = v.shape[:-3], v.shape[-3:]
    if "state" in inputs:
        state = inputs["state"].float()
    else:
        state = v.new_zeros(*lead, heads, k.shape[-1], width)
    read = []
    for t in range(positions):
        state = state * decay[..., t, :, None, None]
        known = torch.einsum("...hkv,...hk->...hv", state, k[..., t, :, :])
        update = (v[..., t, :, :] - known) * beta[..., t, :, None]
        state = state + torch.einsum("...hk,...hv->...hkv", k[..., t, :, :], update)
        read.append(torch.einsum("...hkv,...hk->...hv", state, q[..., t, :, :]))
    return {
        "y": torch.stack(read, dim=-3).to(inputs["v"].dtype),
        "final_state": state.to(torch.float32),
    }


def cost(
    dims: Mapping[str, int],
    variant: Mapping[str, str],
    weight_bytes: float = 4.0,
    activation_bytes: float = 4.0,
) -> tuple[float, float]:
    """Fewest floating-point operations and bytes of one call over ``B`` rows of ``T`` positions.

    A position reads the state twice and updates it once, two operations an element each; the decay
    folds into scalars. The state that comes in is optional: without it the first position reads
    nothing, and only the state that goes out is moved, at four bytes an element, as is ``g``.
    """
    rows, positions, heads = dims["B"], dims["T"], dims["H"]
    key, value = dims["Dk"], dims["Dv"]
    flops = rows * heads * key * value * (6.0 * (positions - 1) + 2.0)
    if variant["qk_norm"] == "l2":
        flops += rows * positions * dims["Hk"] * key * 6.0
    moved = rows * positions * (2 * dims["Hk"] * key + 2 * heads * value + heads)
    exact = rows * heads * (positions + key * value) * 4.0
    return flops, moved * activation_bytes + exact
