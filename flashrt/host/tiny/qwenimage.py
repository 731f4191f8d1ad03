"""Qwen-Image: an image and a text stream with joint attention through a diffusers processor."""

from __future__ import annotations

from flashrt.host.tiny import TinyHost
from flashrt.host.tiny.seeded import frozen, instance

TEXT_TOKENS, HEIGHT, WIDTH = 5, 3, 4
TIMES = (0.9, 0.4)


def build() -> TinyHost:
    """Two blocks of three 32-wide heads; the forward is two Euler steps of a packed latent."""
    import torch
    from diffusers import QwenImageTransformer2DModel

    def make() -> QwenImageTransformer2DModel:
        return QwenImageTransformer2DModel(
            in_channels=16,
            out_channels=4,
            num_layers=2,
            attention_head_dim=32,
            num_attention_heads=3,
            joint_attention_dim=24,
            axes_dims_rope=(8, 12, 12),
        )

    model = instance(make)
    source = torch.Generator().manual_seed(2)
    text = torch.randn(1, TEXT_TOKENS, 24, generator=source)
    start = torch.randn(1, HEIGHT * WIDTH, 16, generator=source)

    def generate() -> torch.Tensor:
        latent = start
        for time in TIMES:
            velocity = model(
                latent,
                encoder_hidden_states=text,
                timestep=torch.tensor([time]),
                img_shapes=[[(1, HEIGHT, WIDTH)]],
                return_dict=False,
            )[0]
            latent = latent - velocity / len(TIMES)
        return latent

    return TinyHost(
        name="qwenimage",
        model=model,
        forward=frozen(generate),
        binding="qwenimage",
        source="diffusers.QwenImageTransformer2DModel",
        note=(
            "kept: two streams, per-head norms, interleaved rotary pairs as complex numbers;"
            " small: 32-wide heads for 128, two blocks; no text mask, since nothing is padded"
        ),
    )
