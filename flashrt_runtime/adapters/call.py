"""One call of scaled_dot_product_attention, its arguments by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt_runtime.adapters.mask import Mask, classify
from flashrt_runtime.reason import Because, Reason

if TYPE_CHECKING:
    import torch

_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


@dataclass(frozen=True)
class AttentionCall:
    """``query`` [B,Hq,Tq,Dh], ``key`` [B,Hkv,Tk,Dh], ``value`` [B,Hkv,Tk,Dv], as torch has them."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    attn_mask: torch.Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None

    @classmethod
    def of(cls, args: tuple[Any, ...], named: Mapping[str, Any]) -> AttentionCall:
        """From the arguments of the call. Raises ``TypeError`` for ones that torch has not."""
        given = dict(zip(_NAMES, args, strict=False)) | dict(named)
        given.pop("enable_gqa", None)
        return cls(**given)

    def objection(self) -> Because | None:
        """Why no attention structure has this boundary, the mask left out, or ``None``."""
        if self.dropout_p > 0:
            return Because(Reason.TRAINING, "the call drops attention weights out")
        if not self.query.dim() == self.key.dim() == self.value.dim() == 4:
            return Because(Reason.LAYOUT, "q, k and v are not [B, H, T, D]")
        if self.query.shape[1] % self.key.shape[1] or self.key.shape[1] != self.value.shape[1]:
            heads = [t.shape[1] for t in (self.query, self.key, self.value)]
            return Because(Reason.SHAPE, f"q, k and v have {heads} heads, in no whole groups")
        return None

    def mask(self) -> Mask | Because:
        """What its mask allows; reads values, so not inside a captured graph."""
        return classify(self.attn_mask, self.is_causal, self.query.shape[2], self.key.shape[2])

    def scaled_as(self, scale: float | None) -> bool:
        """Whether it scales scores by ``scale``; ``None`` is one over the root of the head dim."""
        root = self.query.shape[-1] ** -0.5
        want = root if scale is None else scale
        return abs((root if self.scale is None else self.scale) - want) <= 1e-6 * abs(want)
