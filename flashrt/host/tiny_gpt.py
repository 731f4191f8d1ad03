"""The lab's GPT as a host: the same numbers as a module tree that takes a static cache."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from flashrt_runtime.reason import Reason, Refusal


@dataclass(frozen=True)
class TinyGptConfig:
    """The model's dimensions under the names that readers of a decoder's config look for."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    layer_norm_eps: float
    hidden_act: str
    model_type: str = "tiny_gpt"
    _attn_implementation: str = "sdpa"

    def to_dict(self) -> dict[str, Any]:
        """Every field by its name."""
        return asdict(self)


class Output(NamedTuple):
    """``logits`` float [B, M, V]."""

    logits: torch.Tensor


class Core(nn.Module):
    """Softmax attention over heads; causal where no mask is given. It holds no weights."""

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """``[B, H, M, D]`` queries over ``[B, H, T, D]`` keys and values -> ``[B, H, M, D]``."""
        return scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None
        )


class Attention(nn.Module):
    """Causal self-attention with biased projections."""

    def __init__(self, config: TinyGptConfig, layer: int) -> None:
        super().__init__()
        width = config.hidden_size
        self.layer = layer
        self.heads = config.num_attention_heads
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.core = Core()
        self.o = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None, cache: Any) -> torch.Tensor:
        """``[B, M, W] -> [B, M, W]``; keys and values go through ``cache`` where there is one."""
        query, key, value = (self._split(p(x)) for p in (self.q, self.k, self.v))
        if cache is not None:
            key, value = cache.update(key, value, self.layer)
        mixed = self.core(query, key, value, mask)
        return self.o(mixed.transpose(1, 2).flatten(2))

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class FeedForward(nn.Module):
    """Two biased projections with a GELU between them."""

    def __init__(self, config: TinyGptConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.act = nn.GELU(approximate="tanh" if config.hidden_act == "gelu_tanh" else "none")
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[B, M, W] -> [B, M, W]``."""
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    """One pre-norm layer."""

    def __init__(self, config: TinyGptConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.attention = Attention(config, layer)
        self.ffn_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.ffn = FeedForward(config)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None, cache: Any) -> torch.Tensor:
        """``[B, M, W] -> [B, M, W]``."""
        x = x + self.attention(self.attention_norm(x), mask, cache)
        return x + self.ffn(self.ffn_norm(x))


class TinyGpt(nn.Module):
    """Token and learned position embeddings, pre-norm blocks, a final norm and token scores.

    It takes what :class:`flashrt_runtime.decode.step.DecodeStep` gives: tokens, positions, a mask
    and a cache that it writes its keys and values to.
    """

    def __init__(self, config: TinyGptConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, width)
        self.position = nn.Embedding(config.max_position_embeddings, width)
        self.blocks = nn.ModuleList(Block(config, i) for i in range(config.num_hidden_layers))
        self.final_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.output = nn.Linear(width, config.vocab_size, bias=False)

    def get_input_embeddings(self) -> nn.Embedding:
        """The token embedding."""
        return self.embedding

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        *,
        past_key_values: Any = None,
        use_cache: bool = False,
        logits_to_keep: int = 0,
    ) -> Output:
        """Logits of ``input_ids [B, M]``; of the last ``logits_to_keep`` where it is not 0.

        ``attention_mask`` is ``[1, 1, M, T]`` (Boolean or additive), causal without one.
        ``position_ids [B, M]`` are 0 … M-1 by default. ``past_key_values`` has ``update`` as
        transformers' caches have. Raises :class:`Refusal` (SHAPE) for more tokens than positions.
        """
        length = input_ids.shape[1]
        if length > self.config.max_position_embeddings:
            raise Refusal(
                Reason.SHAPE,
                f"{length} tokens; there are {self.config.max_position_embeddings} positions",
                subject="tiny_gpt",
                do="give a shorter --window",
            )
        if position_ids is None:
            position_ids = torch.arange(length, device=input_ids.device)[None]
        x = self.embedding(input_ids) + self.position(position_ids)
        for block in self.blocks:
            x = block(x, attention_mask, past_key_values if use_cache else None)
        return Output(self.output(self.final_norm(x[:, -logits_to_keep:])))
