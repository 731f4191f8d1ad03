"""One decoder step of a causal LM over its own static state: what is captured and replayed."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from flashrt_runtime.decode.cache import CacheView, layout_of, masks
from flashrt_runtime.reason import Reason, Refusal


class DecodeStep(nn.Module):
    """A causal LM as ``step(token_ids [B, M], positions [M]) -> logits [B, M, V]``.

    Every call writes the keys and values of its ``M`` tokens at ``positions`` of a state that
    holds ``context`` positions, and reads all of the state up to each position. ``rows`` is the
    ``M`` that is to be captured; other ``M`` run eagerly over the same state. The host is duck
    typed: it needs a config, a causal forward and the cache argument of transformers. Raises
    :class:`Refusal` (STRUCTURE, FORM) for a host that has none of that.
    """

    def __init__(self, model: nn.Module, batch: int, rows: int, context: int) -> None:
        super().__init__()
        if batch < 1 or rows < 1 or context < rows:
            what = f"batch {batch}, rows {rows}, context {context}: nothing fits"
            raise Refusal(Reason.SHAPE, what)
        self.model = model
        self.batch = batch
        self.rows = rows
        self.context = context
        self.layout = layout_of(model)
        accepted = inspect.signature(type(model).forward).parameters
        self._cache_name = "cache" if "cache" in accepted else "past_key_values"
        self._keeps = "logits_to_keep" in accepted
        if self._cache_name not in accepted:
            what = f"{type(model).__name__}.forward takes no cache"
            raise Refusal(Reason.STRUCTURE, what)
        weight = next(model.parameters())
        self.dtype = weight.dtype
        self.device = weight.device
        shape = (batch, self.layout.kv_heads, context, self.layout.head_dim)
        made = [torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in self._twice()]
        self._keys = made[0::2]
        self._values = made[1::2]
        self.train(False)

    def _twice(self) -> range:
        return range(2 * self.layout.layers)

    def windows(self) -> dict[str, torch.Tensor]:
        """Inputs to capture with: ``token_ids [batch, rows]`` and ``positions [rows]``, int64."""
        ids = torch.zeros((self.batch, self.rows), dtype=torch.int64, device=self.device)
        return {"token_ids": ids, "positions": torch.arange(self.rows, device=self.device)}

    def reset(self) -> None:
        """Forget every position."""
        with torch.no_grad():
            for tensor in (*self._keys, *self._values):
                tensor.zero_()

    def _run(self, token_ids: torch.Tensor, positions: torch.Tensor, **named: Any) -> torch.Tensor:
        view = CacheView(self._keys, self._values, positions)
        outputs = self.model(
            input_ids=token_ids,
            attention_mask=masks(self.layout, positions, self.context, self.dtype),
            position_ids=positions[None].expand(token_ids.shape[0], -1),
            use_cache=True,
            **{self._cache_name: view},
            **named,
        )
        logits: torch.Tensor = outputs.logits
        return logits

    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Logits ``[B, M, V]`` of ``token_ids [B, M]`` at ``positions [M]`` (ascending)."""
        return self._run(token_ids, positions)

    def prefill(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Write a prompt ``[B, M]`` at positions ``0..M-1``, eagerly; logits ``[B, V]`` of its end.

        Raises :class:`Refusal` (SHAPE) when the prompt does not fit, before anything is written.
        """
        batch, length = token_ids.shape
        if batch != self.batch or not 1 <= length <= self.context:
            what = (
                f"a prompt of {batch} x {length} tokens does not fit a state of "
                f"{self.batch} x {self.context} positions"
            )
            raise Refusal(Reason.SHAPE, what, do="shorten the prompt or build a longer context")
        positions = torch.arange(length, device=self.device)
        keep = {"logits_to_keep": 1} if self._keeps else {}
        with torch.inference_mode(False), torch.no_grad():
            return self._run(token_ids, positions, **keep)[:, -1]
