"""Qwen3-VL: a vision tower with 72-wide heads and packed q, k and v, and a Qwen3 decoder."""

from __future__ import annotations

from typing import Any

from flashrt.host.tiny import TinyHost
from flashrt.host.tiny.seeded import frozen, instance

_IMAGE, _START, _END = 90, 91, 92
_TEXT: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "max_position_embeddings": 64,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 5e6,
        "mrope_section": [24, 20, 20],
        "mrope_interleaved": True,
    },
}
_VISION: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 144,
    "intermediate_size": 160,
    "num_heads": 2,
    "patch_size": 4,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0],
}


def build() -> TinyHost:
    """One image of four by four patches in a prompt; the forward is a prefill with a cache."""
    import torch
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    config = Qwen3VLConfig(
        text_config=_TEXT,
        vision_config=_VISION,
        image_token_id=_IMAGE,
        vision_start_token_id=_START,
        vision_end_token_id=_END,
    )
    model = instance(lambda: Qwen3VLForConditionalGeneration(config))
    tokens = torch.tensor([[3, 5, _START, *[_IMAGE] * 4, _END, 7, 11]])
    source = torch.Generator().manual_seed(2)
    inputs = {
        "input_ids": tokens,
        "mm_token_type_ids": (tokens == _IMAGE).int(),
        "pixel_values": torch.randn(16, 3 * 2 * 4 * 4, generator=source),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
    }
    return TinyHost(
        name="qwen3_vl",
        model=model,
        forward=frozen(lambda: model(**inputs, use_cache=True)),
        binding="qwen3_vl",
        source="transformers.Qwen3VLForConditionalGeneration",
        note=(
            "kept: 72-wide vision heads, packed q, k and v, 128-wide text heads, interleaved"
            " three-axis rotary, one deepstack layer; small: widths, layers, a 16-patch image"
        ),
    )
