"""decoder_block in plain torch, in float32 whatever the boundary's dtype, and its cost."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F

Tensors = Mapping[str, torch.Tensor]


def _rms(x: torch.Tensor, weight: torch.Tensor, variant: Mapping[str, str]) -> torch.Tensor:
    gain = weight.float() + (1.0 if variant["norm"] == "rms_offset" else 0.0)
    mean_square = x.square().mean(dim=-1, keepdim=True)
    return x * torch.rsqrt(mean_square + float(variant["eps"])) * gain


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate-half over the first R of each head; ``x`` [B, T, H, Dh], ``cos`` [B or 1, T, 1, R]."""
    width = cos.shape[-1]
    turned, kept = x[..., :width], x[..., width:]
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cos + torch.cat((-second, first), dim=-1) * sin
    return torch.cat((turned, kept), dim=-1)


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention, heads in axis 2; query i sees the keys up to Tk - Tq + i."""
    group = q.shape[2] // k.shape[2]
    k, v = (t.repeat_interleave(group, dim=2) for t in (k, v))
    logits = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    queries, keys = logits.shape[-2:]
    hidden = torch.ones(queries, keys, dtype=torch.bool, device=q.device).triu(keys - queries + 1)
    share = torch.softmax(logits.masked_fill(hidden, -math.inf), dim=-1)
    return torch.einsum("bhqk,bkhd->bqhd", share, v)


def _heads(
    normed: torch.Tensor, held: Tensors, variant: Mapping[str, str]
) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values [B, T, H, Dh] with the norms of their heads, not yet rotated."""
    normal = variant["qk_norm"] == "per_head"
    width = held["q_norm"].shape[0] if normal else int(variant["head_dim"])
    made = []
    for role in ("q", "k", "v"):
        bias = held[f"{role}_bias"] if variant["bias"] == "present" else None
        t = F.linear(normed, held[role], bias).unflatten(-1, (-1, width))
        made.append(_rms(t, held[f"{role}_norm"], variant) if normal and role != "v" else t)
    return tuple(made)


def reference(
    inputs: Tensors, weights: Tensors, variant: Mapping[str, str]
) -> dict[str, torch.Tensor]:
    """Outputs ``y`` [..., T, D] and the state ``k``, ``v`` [..., Tp+T, Hkv, Dh].

    ``x`` is [..., T, D]; ``past_k`` and ``past_v`` come together or not at all (ValueError).
    Everything is float32 but the state, which is rounded to the dtype of ``x`` before it is
    attended: a call cut in two attends the same keys and values as one call.
    """
    if ("past_k" in inputs) != ("past_v" in inputs):
        raise ValueError("past_k and past_v come together or not at all")
    dtype, lead = inputs["x"].dtype, inputs["x"].shape[:-2]
    x = inputs["x"].float().flatten(0, -3) if lead else inputs["x"].float()[None]
    turning = inputs["cos"].shape[-1]
    cos, sin = (inputs[n].float().reshape(-1, x.shape[1], 1, turning) for n in ("cos", "sin"))
    held = {name: tensor.float() for name, tensor in weights.items()}
    q, k, v = _heads(_rms(x, held["input_norm"], variant), held, variant)
    q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
    state = {"k": k.to(dtype), "v": v.to(dtype)}
    if "past_k" in inputs:
        for name, new in state.items():
            past = inputs[f"past_{name}"]
            past = past.reshape(-1, *past.shape[-3:])
            state[name] = torch.cat((past.to(dtype), new), dim=1)
    attended = _attend(q, state["k"].float(), state["v"].float())
    x = x + F.linear(attended.flatten(-2), held["o"])
    normed = _rms(x, held["post_norm"], variant)
    gate = F.linear(normed, held["gate"])
    act = F.silu(gate) if variant["activation"] == "silu" else F.gelu(gate, approximate="tanh")
    y = x + F.linear(act * F.linear(normed, held["up"]), held["down"])
    out = {"y": y.to(dtype), **state}
    return {name: t.reshape(*lead, *t.shape[1:]) for name, t in out.items()}


def cost(
    dims: Mapping[str, int],
    variant: Mapping[str, str],
    weight_bytes: float = 4.0,
    activation_bytes: float = 4.0,
) -> tuple[float, float]:
    """Fewest floating-point operations and bytes of one call over ``B`` rows of ``T`` positions.

    The sum of its parts, each counted as its own structure counts it, with nothing moved between
    them. Of the state, the past is read and only the new positions are written; ``Tp`` may be left
    out where there is no past. Matrices are read once at ``weight_bytes``, vectors at the
    activations' width, one float32 table serves every row.
    """
    rows, new, past = dims["B"], dims["T"], dims.get("Tp", 0)
    width, hidden, head = dims["D"], dims["F"], dims["Dh"]
    queries, keys = dims["Hq"] * head, dims["Hkv"] * head
    tokens = rows * new
    pairs = new * past + new * (new + 1) // 2
    matrices = width * (2 * queries + 2 * keys) + 3 * width * hidden
    vectors = 2 * width
    flops = 2.0 * tokens * matrices + tokens * (10.0 * width + 8.0 * hidden)
    flops += rows * dims["Hq"] * pairs * (4.0 * head + 5.0)
    flops += 3.0 * tokens * (dims["Hq"] + dims["Hkv"]) * dims["R"]
    if variant["qk_norm"] == "per_head":
        flops += 4.0 * tokens * (queries + keys)
        vectors += 2 * head
    if variant["bias"] == "present":
        flops += tokens * (queries + 2 * keys)
        vectors += queries + 2 * keys
    moved = 2 * tokens * width + 2 * rows * (past + new) * keys + vectors
    table = 8.0 * new * dims["R"]
    return flops, matrices * weight_bytes + moved * activation_bytes + table
