"""qk_norm_rope in plain torch, computed in float32 whatever the boundary's dtype, and its cost."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def _normed(x: torch.Tensor, gain: torch.Tensor, variant: Mapping[str, str]) -> torch.Tensor:
    scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + float(variant["eps"]))
    return x * scale * (gain.float() + (1.0 if variant["gain"] == "offset" else 0.0))


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """``x`` [B, T, H, Dh] with its first R channels rotated by tables [B or 1, T, 1, R]."""
    rotary, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    first, second = rotary.chunk(2, dim=-1)
    half = torch.cat([-second, first], dim=-1)
    return torch.cat([rotary * cos + half * sin, rest], dim=-1)


def reference(
    inputs: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    variant: Mapping[str, str],
) -> dict[str, torch.Tensor]:
    """The outputs ``q`` [..., T, Hq, Dh], ``k`` and ``v`` [..., T, Hkv, Dh].

    ``q``, ``k`` and ``v`` are [..., T, heads*Dh]; ``cos`` and ``sin`` [..., T, R] are one table for
    every leading index or one each. Statistics, weights and rotations are float32; every tensor
    returned has the dtype of the input of its name.
    """
    wide = variant["norm"] == "projection"
    width = int(variant["head_dim"]) if wide else weights["q_norm"].shape[0]
    tokens, rotary = inputs["cos"].shape[-2:]
    cos, sin = (inputs[n].float().reshape(-1, tokens, 1, rotary) for n in ("cos", "sin"))
    out = {"v": inputs["v"].unflatten(-1, (-1, width))}
    for name in ("q", "k"):
        x = inputs[name].float()
        if wide:
            x = _normed(x, weights[f"{name}_norm_wide"], variant)
        x = x.unflatten(-1, (-1, width))
        if not wide:
            x = _normed(x, weights[f"{name}_norm"], variant)
        rotated = _rotated(x.reshape(-1, *x.shape[-3:]), cos, sin)
        out[name] = rotated.reshape(x.shape).to(inputs[name].dtype)
    return out


def cost(
    dims: Mapping[str, int],
    variant: Mapping[str, str],
    weight_bytes: float = 4.0,
    activation_bytes: float = 4.0,
) -> tuple[float, float]:
    """Fewest floating-point operations and bytes of one call over ``B`` rows of ``T`` positions.

    ``q`` and ``k`` are read and written once; ``v`` is a view and moves nothing. One float32 table
    serves every row, each element read once. Bytes are per element; there is no matrix, and
    vectors keep the activations' width.
    """
    tokens, heads = dims["B"] * dims["T"], dims["Hq"] + dims["Hkv"]
    flops = tokens * heads * (4.0 * dims["Dh"] + 3.0 * dims["R"])
    vectors = dims["Dh"] * (heads if variant["norm"] == "projection" else 2)
    tables = 2.0 * dims["T"] * dims["R"] * 4.0
    return flops, tables + (vectors + 2.0 * tokens * heads * dims["Dh"]) * activation_bytes
