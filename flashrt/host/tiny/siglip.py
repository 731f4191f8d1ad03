"""SigLIP's vision tower: layer norms with biases, a tanh GELU feed-forward, 72-wide heads."""

from __future__ import annotations

from flashrt.host.tiny import TinyHost
from flashrt.host.tiny.seeded import frozen, instance


def build() -> TinyHost:
    """Two layers over one image of four by four patches."""
    import torch
    from transformers import SiglipVisionConfig, SiglipVisionModel

    config = SiglipVisionConfig(
        hidden_size=144,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=32,
        patch_size=8,
    )
    model = instance(lambda: SiglipVisionModel(config))
    pixels = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    return TinyHost(
        name="siglip",
        model=model,
        forward=frozen(lambda: model(pixel_values=pixels)),
        binding=None,
        source="transformers.SiglipVisionModel",
        note="kept: 72-wide heads, biases, the pooling head; small: widths, two layers, 16 patches",
    )
