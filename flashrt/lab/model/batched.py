"""All new positions at once, as torch does it: what trains, and the control that is not exact."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F

from flashrt.lab.records import ModelArchitecture

Cache = tuple[list[torch.Tensor], list[torch.Tensor]]


def forward(
    shape: ModelArchitecture,
    weights: Mapping[str, torch.Tensor],
    token_ids: torch.Tensor,
    past: Cache | None = None,
) -> tuple[torch.Tensor, Cache]:
    """Final hidden vectors ``[batch, new, width]`` after the final norm, and the whole cache.

    ``token_ids`` is ``[batch, new]``; ``weights`` are stacked; ``past`` and the cache that comes
    back hold ``[batch, positions, width]`` for each layer. Differentiable in the weights.
    """
    start = 0 if past is None else past[0][0].shape[1]
    new = token_ids.shape[1]
    approximate = "tanh" if shape.activation == "gelu_tanh" else "none"

    def tensor(name: str, layer: int) -> torch.Tensor:
        return weights[f"blocks.{name}"][layer]

    def mapped(name: str, layer: int, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, tensor(f"{name}.weight", layer), tensor(f"{name}.bias", layer))

    def norm(x: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (shape.width,), gain, bias, shape.epsilon)

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (shape.heads, -1)).transpose(1, 2)

    places = weights["position.weight"][start : start + new]
    hidden = F.embedding(token_ids, weights["embedding.weight"]) + places
    cache: Cache = ([], [])
    seen = torch.ones(new, start + new, dtype=torch.bool).tril(start)
    for layer in range(shape.layers):
        gain = tensor("attention_norm.weight", layer)
        x = norm(hidden, gain, tensor("attention_norm.bias", layer))
        keys, values = mapped("attention.k", layer, x), mapped("attention.v", layer, x)
        if past is not None:
            keys = torch.cat((past[0][layer], keys), 1)
            values = torch.cat((past[1][layer], values), 1)
        cache[0].append(keys)
        cache[1].append(values)
        query = heads(mapped("attention.q", layer, x))
        mixed = F.scaled_dot_product_attention(query, heads(keys), heads(values), attn_mask=seen)
        hidden = hidden + mapped("attention.o", layer, mixed.transpose(1, 2).flatten(2))
        x = norm(hidden, tensor("ffn_norm.weight", layer), tensor("ffn_norm.bias", layer))
        x = F.gelu(mapped("ffn.fc1", layer, x), approximate=approximate)
        hidden = hidden + mapped("ffn.fc2", layer, x)
    return norm(hidden, weights["final_norm.weight"], weights["final_norm.bias"]), cache
