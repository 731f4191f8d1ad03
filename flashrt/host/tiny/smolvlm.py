"""SmolVLM: a SigLIP-like tower, a pixel shuffle and a Llama decoder; SmolVLA's backbone."""

from __future__ import annotations

from typing import Any

from flashrt.host.tiny import TinyHost
from flashrt.host.tiny.seeded import frozen, instance

_IMAGE = 90
_TEXT: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 96,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
_VISION: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 1,
    "image_size": 32,
    "patch_size": 8,
}


def build() -> TinyHost:
    """One image of four by four patches in a prompt; the forward is a prefill with a cache."""
    import torch
    from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration

    config = SmolVLMConfig(
        text_config=_TEXT, vision_config=_VISION, image_token_id=_IMAGE, scale_factor=2
    )
    model = instance(lambda: SmolVLMForConditionalGeneration(config))
    source = torch.Generator().manual_seed(2)
    inputs = {
        "input_ids": torch.tensor([[3, 5, *[_IMAGE] * 4, 7, 11]]),
        "pixel_values": torch.randn(1, 1, 3, 32, 32, generator=source),
    }
    return TinyHost(
        name="smolvlm",
        model=model,
        forward=frozen(lambda: model(**inputs, use_cache=True)),
        binding=None,
        source="transformers.SmolVLMForConditionalGeneration",
        note="kept: 64-wide heads, three queries a key, the pixel shuffle; small: widths, layers",
    )
