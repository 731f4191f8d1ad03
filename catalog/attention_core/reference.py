"""attention_core in plain torch, in float32 whatever the boundary's dtype, and its cost."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch


def _seen(
    queries: int, keys: int, inputs: Mapping[str, torch.Tensor], variant: Mapping[str, str]
) -> torch.Tensor:
    """Which key each query sees, bool [Tq, Tk]."""
    key = torch.arange(keys, device=inputs["k"].device)
    if variant["mask"] == "causal":
        last = torch.arange(queries, device=key.device)[:, None] + (keys - queries)
        return key[None, :] <= last
    if variant["mask"] == "none":
        return torch.ones(queries, keys, dtype=torch.bool, device=key.device)
    allowed, end = torch.zeros(keys, dtype=torch.bool, device=key.device), 0
    for start, stop in inputs["ranges"].tolist():
        if not end <= start < stop <= keys:
            raise ValueError(
                f"[{start}, {stop}) is not a sorted, disjoint range within {keys} keys"
            )
        allowed |= (key >= start) & (key < stop)
        end = stop
    return allowed[None, :].expand(queries, keys)


def reference(
    inputs: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    variant: Mapping[str, str],
) -> dict[str, torch.Tensor]:
    """The output ``y`` [..., Tq, Hq, Dv], in the dtype of ``q``.

    ``q`` is [..., Tq, Hq, Dh], ``k`` [..., Tk, Hkv, Dh], ``v`` [..., Tk, Hkv, Dv]. Logits, softmax
    and the weighted sum are float32. Raises ValueError for ranges that are empty, out of order,
    overlapping or outside the keys.
    """
    q = inputs["q"].float().transpose(-3, -2)
    group = q.shape[-3] // inputs["k"].shape[-2]
    k = inputs["k"].float().transpose(-3, -2).repeat_interleave(group, dim=-3)
    v = inputs["v"].float().transpose(-3, -2).repeat_interleave(group, dim=-3)
    given = variant["scaling"] == "given"
    scale = float(variant["scale"]) if given else 1.0 / math.sqrt(q.shape[-1])
    seen = _seen(q.shape[-2], k.shape[-2], inputs, variant)
    logits = (q @ k.transpose(-1, -2) * scale).masked_fill(~seen, -math.inf)
    share = torch.softmax(logits, dim=-1).masked_fill(~seen, 0.0)
    return {"y": (share @ v).transpose(-3, -2).to(inputs["q"].dtype)}


def cost(
    dims: Mapping[str, int],
    variant: Mapping[str, str],
    weight_bytes: float = 4.0,
    activation_bytes: float = 4.0,
) -> tuple[float, float]:
    """Fewest floating-point operations and bytes of one call over ``B`` rows.

    Only the pairs of a query and a key it sees are counted: two operations for each element of
    both products and five for the softmax (scale, largest, difference, exponential, sum). What the
    ranges hold is not known from the dims, so each counts at one key, its least. No matrix of
    logits is moved.
    """
    queries, keys = dims["Tq"], dims["Tk"]
    pairs, read = queries * keys, keys
    if variant["mask"] == "causal":
        hidden = max(keys - queries, 0)
        seeing = min(queries, keys)
        pairs = queries * hidden + seeing * (seeing + 1) // 2
    elif variant["mask"] == "key_ranges":
        read = min(dims["R"], keys)
        pairs = queries * read
    head, value = dims["Dh"], dims["Dv"]
    flops = dims["B"] * dims["Hq"] * pairs * (2.0 * head + 2.0 * value + 5.0)
    moved = dims["Hq"] * queries * (head + value) + dims["Hkv"] * read * (head + value)
    ranges = 16.0 * dims["R"] if variant["mask"] == "key_ranges" else 0.0
    return flops, dims["B"] * moved * activation_bytes + ranges
