"""One position at a time: the arithmetic whose bits depend on the prefix and on nothing else.

Every map is a product of one row (M = 1) and every attention reads exactly its prefix, so a
position's shapes, and with them the order of every sum, are the same however a sequence was
split. Attention is written as products and sums: a batched product might be split by threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from flashrt.lab.records import ModelArchitecture

Observe = Callable[[str, int, torch.Tensor], None]


def ignore(name: str, position: int, value: torch.Tensor) -> None:
    """An observer that keeps nothing."""


@dataclass(frozen=True)
class Rows:
    """``weights`` are by the names of a module tree; nobody else may hold them."""

    shape: ModelArchitecture
    weights: dict[str, torch.Tensor]

    def position(
        self,
        token_id: int,
        at: int,
        cache: tuple[list[torch.Tensor], list[torch.Tensor]],
        observe: Observe = ignore,
    ) -> torch.Tensor:
        """Compute one position: hidden ``[1, width]``, before the final norm.

        ``cache`` holds keys and values, for each layer ``[positions, width]``; rows before ``at``
        are read and row ``at`` is written.
        """
        w = self.weights
        place = w["position.weight"][at : at + 1]
        observe("position", at, place)
        hidden = w["embedding.weight"][token_id : token_id + 1] + place
        observe("embedding", at, hidden)
        for layer in range(self.shape.layers):
            name = f"blocks.{layer}"
            x = self._norm(f"{name}.attention_norm", hidden)
            observe(f"{name}.attention_norm", at, x)
            keys, values = cache[0][layer], cache[1][layer]
            keys[at : at + 1] = self._map(f"{name}.attention.k", x)
            values[at : at + 1] = self._map(f"{name}.attention.v", x)
            mixed = self._mix(self._map(f"{name}.attention.q", x), keys[: at + 1], values[: at + 1])
            x = self._map(f"{name}.attention.o", mixed)
            observe(f"{name}.attention", at, x)
            hidden = hidden + x
            observe(f"{name}.attention_residual", at, hidden)
            x = self._norm(f"{name}.ffn_norm", hidden)
            observe(f"{name}.ffn_norm", at, x)
            x = F.gelu(self._map(f"{name}.ffn.fc1", x), approximate=self._approximate)
            x = self._map(f"{name}.ffn.fc2", x)
            observe(f"{name}.ffn", at, x)
            hidden = hidden + x
            observe(f"{name}.ffn_residual", at, hidden)
        return hidden

    def logits(self, hidden: torch.Tensor, at: int, observe: Observe = ignore) -> torch.Tensor:
        """Scores ``[1, vocabulary]`` of a position's hidden vector."""
        x = self._norm("final_norm", hidden)
        observe("final_norm", at, x)
        scores = F.linear(x, self.weights["output.weight"])
        observe("output", at, scores)
        return scores

    @property
    def _approximate(self) -> str:
        return "tanh" if self.shape.activation == "gelu_tanh" else "none"

    def _map(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        gain, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return F.layer_norm(x, (self.shape.width,), gain, bias, self.shape.epsilon)

    def _mix(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Query ``[1, width]``, keys and values ``[positions, width]``; ``[1, width]``."""
        heads, width = self.shape.heads, self.shape.width
        size = width // heads
        scores = (keys.view(-1, heads, size) * query.view(1, heads, size)).sum(-1)
        shares = torch.softmax(scores * size**-0.5, dim=0)
        mixed = (values.view(-1, heads, size) * shares.unsqueeze(-1)).sum(0)
        return mixed.view(1, width)
