"""Qwen3-Next: gated delta layers beside gated attention, fused experts with a shared one."""

from __future__ import annotations

from flashrt.host.tiny import TinyHost
from flashrt.host.tiny.seeded import frozen, instance

TOKENS = 6


def build() -> TinyHost:
    """Two gated delta layers and one of attention; the forward generates two tokens.

    The second is decoded from the state of the first forward: the host calls its recurrent form of
    the delta rule for one cached token, and its chunked form otherwise.
    """
    import torch
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

    config = Qwen3NextConfig(
        vocab_size=96,
        hidden_size=64,
        intermediate_size=112,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=64,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=48,
        num_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=64,
        layer_types=["linear_attention", "linear_attention", "full_attention"],
    )
    model = instance(lambda: Qwen3NextForCausalLM(config))
    tokens = (torch.arange(TOKENS)[None] * 7 + 3) % config.vocab_size

    def generate() -> object:
        found = model.generate(
            tokens,
            max_new_tokens=2,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        return torch.stack(found.logits)

    return TinyHost(
        name="qwen3_next",
        model=model,
        forward=frozen(generate),
        binding="qwen3_next",
        source="transformers.Qwen3NextForCausalLM",
        note=(
            "kept: two value heads a key head, a quarter of each head rotated, queries packed with"
            " their gate, fused experts beside a shared one; small: widths, layers, four experts"
        ),
    )
