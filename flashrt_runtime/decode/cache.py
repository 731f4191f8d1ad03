"""A static key-value cache that a transformers model takes for its own, and its masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flashrt_runtime.reason import Reason, Refusal

_FULL, _SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class CacheLayout:
    """What a host's config says about its key-value state and its attention.

    ``window`` is the sliding window of the layers of kind ``sliding_attention``, in positions.
    """

    layers: int
    kv_heads: int
    head_dim: int
    kinds: tuple[str, ...]
    window: int | None
    additive: bool


def _number(config: Any, name: str, default: int | None = None) -> int:
    value = getattr(config, name, None)
    value = default if value is None else value
    if not isinstance(value, int) or value < 1:
        what = f"the host's config does not say {name} (found {value!r})"
        raise Refusal(
            Reason.STRUCTURE, what, do="a causal decoder with a key-value cache is needed"
        )
    return value


def _kinds(config: Any, window: int | None) -> tuple[str, ...]:
    declared = getattr(config, "layer_types", None)
    kinds = tuple(sorted(set(declared))) if declared else ((_SLIDING,) if window else (_FULL,))
    unknown = [kind for kind in kinds if kind not in (_FULL, _SLIDING)]
    if unknown:
        what = f"layers of kind {', '.join(unknown)} keep another state than keys and values"
        raise Refusal(Reason.STRUCTURE, what)
    if _SLIDING in kinds and window is None:
        raise Refusal(Reason.STRUCTURE, "sliding layers are declared without a window")
    return kinds


def layout_of(model: torch.nn.Module) -> CacheLayout:
    """Read the layout from a causal LM's config (``head_dim`` falls back to hidden / heads).

    Raises :class:`Refusal`: STRUCTURE for a host whose state is not keys and values, FORM for an
    attention implementation whose mask we do not know.
    """
    config: Any = getattr(model, "config", None)
    text = getattr(config, "get_text_config", None)
    config = text() if callable(text) else config
    if config is None:
        raise Refusal(Reason.STRUCTURE, "the host has no config to read its decoder from")
    attention = getattr(config, "_attn_implementation", None) or "eager"
    if attention not in ("sdpa", "eager"):
        what = f"the attention implementation {attention!r} takes no dense mask"
        raise Refusal(Reason.FORM, what, do="load the host with attn_implementation='sdpa'")
    heads = _number(config, "num_attention_heads")
    window = getattr(config, "sliding_window", None)
    window = window if isinstance(window, int) and window > 0 else None
    return CacheLayout(
        layers=_number(config, "num_hidden_layers"),
        kv_heads=_number(config, "num_key_value_heads", heads),
        head_dim=_number(config, "head_dim", _number(config, "hidden_size") // heads),
        kinds=_kinds(config, window),
        window=window,
        additive=attention == "eager",
    )


class CacheView:
    """One step's view of the state: writes its keys and values at ``positions``.

    Has the methods that transformers calls on a cache when masks and positions are given.
    """

    is_compileable = True

    def __init__(
        self, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor], positions: torch.Tensor
    ) -> None:
        self.keys = keys
        self.values = values
        self.positions = positions

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *args: Any, **named: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write ``[B, H, M, D]`` keys and values; return the whole state ``[B, H, L, D]``."""
        self.keys[layer].index_copy_(2, self.positions, keys)
        self.values[layer].index_copy_(2, self.positions, values)
        return self.keys[layer], self.values[layer]

    def get_seq_length(self, layer: int = 0) -> int:
        """Not known to the host: positions are always given."""
        return 0

    def get_max_cache_shape(self, layer: int = 0) -> int:
        """Positions that fit."""
        return self.keys[layer].shape[2]


def _mask(positions: torch.Tensor, context: int, window: int | None) -> torch.Tensor:
    keys = torch.arange(context, device=positions.device)[None, :]
    queries = positions[:, None]
    allowed = keys <= queries
    if window is not None and window < context:
        allowed = allowed & (keys > queries - window)
    return allowed[None, None]


def masks(
    layout: CacheLayout, positions: torch.Tensor, context: int, dtype: torch.dtype
) -> torch.Tensor | dict[str, torch.Tensor]:
    """``[1, 1, M, context]`` causal mask, or one for each kind of layer where there are two."""

    def finished(kind: str) -> torch.Tensor:
        allowed = _mask(positions, context, layout.window if kind == _SLIDING else None)
        if not layout.additive:
            return allowed
        lowest = torch.full_like(allowed, torch.finfo(dtype).min, dtype=dtype)
        return lowest.masked_fill(allowed, 0.0)

    if len(layout.kinds) == 1:
        return finished(layout.kinds[0])
    return {kind: finished(kind) for kind in layout.kinds}
