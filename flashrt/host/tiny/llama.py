"""Llama as SmolLM2 uses it: three queries a key, 64-wide heads, tied embeddings."""

from __future__ import annotations

from flashrt.host.tiny import TinyHost
from flashrt.host.tiny.seeded import frozen, instance

TOKENS = 6


def build() -> TinyHost:
    """Two layers of SmolLM2's shape; the forward is a prefill with a cache."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=96,
        hidden_size=96,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    model = instance(lambda: LlamaForCausalLM(config))
    tokens = (torch.arange(TOKENS)[None] * 7 + 3) % config.vocab_size
    return TinyHost(
        name="llama",
        model=model,
        forward=frozen(lambda: model(input_ids=tokens, use_cache=True)),
        binding="smollm2",
        source="transformers.LlamaForCausalLM",
        note=(
            "kept: SmolLM2's epsilon, 64-wide heads, three queries a key, tied head; "
            "small: width, layers"
        ),
    )
