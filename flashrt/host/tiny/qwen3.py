"""Qwen3: grouped queries, 128-wide heads, per-head norms, a SwiGLU feed-forward."""

from __future__ import annotations

from flashrt.host.tiny import TinyHost
from flashrt.host.tiny.seeded import frozen, instance

TOKENS = 6


def build() -> TinyHost:
    """Two layers, four query heads over two key heads; the forward is a prefill with a cache."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=96,
        hidden_size=64,
        intermediate_size=112,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=128,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    model = instance(lambda: Qwen3ForCausalLM(config))
    tokens = (torch.arange(TOKENS)[None] * 7 + 3) % config.vocab_size
    return TinyHost(
        name="qwen3",
        model=model,
        forward=frozen(lambda: model(input_ids=tokens, use_cache=True)),
        binding="qwen3",
        source="transformers.Qwen3ForCausalLM",
        note="kept: 128-wide heads, two queries a key, per-head norms; small: width 64, two layers",
    )
