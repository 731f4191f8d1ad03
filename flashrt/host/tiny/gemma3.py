"""Gemma 3's text decoder: offset norms around both halves, per-head norms, sliding layers."""

from __future__ import annotations

from flashrt.host.tiny import TinyHost
from flashrt.host.tiny.seeded import frozen, instance

TOKENS = 6


def build() -> TinyHost:
    """One sliding and one full layer; the forward is a prefill with a cache."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = Gemma3TextConfig(
        vocab_size=96,
        hidden_size=64,
        intermediate_size=112,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=128,
        query_pre_attn_scalar=128,
        sliding_window=32,
        layer_types=["sliding_attention", "full_attention"],
        max_position_embeddings=64,
    )
    model = instance(lambda: Gemma3ForCausalLM(config))
    tokens = (torch.arange(TOKENS)[None] * 7 + 3) % config.vocab_size
    return TinyHost(
        name="gemma3",
        model=model,
        forward=frozen(lambda: model(input_ids=tokens, use_cache=True)),
        binding=None,
        source="transformers.Gemma3ForCausalLM",
        note="kept: offset norms, tanh GELU, per-head norms, both kinds of layer; small: widths",
    )
