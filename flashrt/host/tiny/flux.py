"""Flux: double-stream blocks, then single-stream ones, with joint attention by a processor."""

from __future__ import annotations

from flashrt.host.tiny import TinyHost
from flashrt.host.tiny.seeded import frozen, instance

TEXT_TOKENS, HEIGHT, WIDTH = 5, 3, 4
TIMES = (0.9, 0.4)


def build() -> TinyHost:
    """Two blocks of each kind, three 32-wide heads; the forward is two Euler steps."""
    import torch
    from diffusers import FluxTransformer2DModel

    def make() -> FluxTransformer2DModel:
        return FluxTransformer2DModel(
            in_channels=16,
            num_layers=2,
            num_single_layers=2,
            attention_head_dim=32,
            num_attention_heads=3,
            joint_attention_dim=24,
            pooled_projection_dim=20,
            axes_dims_rope=(8, 12, 12),
        )

    model = instance(make)
    source = torch.Generator().manual_seed(2)
    start = torch.randn(1, HEIGHT * WIDTH, 16, generator=source)
    flat = torch.arange(HEIGHT * WIDTH)
    fixed = {
        "encoder_hidden_states": torch.randn(1, TEXT_TOKENS, 24, generator=source),
        "pooled_projections": torch.randn(1, 20, generator=source),
        "img_ids": torch.stack([torch.zeros_like(flat), flat // WIDTH, flat % WIDTH], dim=1),
        "txt_ids": torch.zeros(TEXT_TOKENS, 3),
        "return_dict": False,
    }

    def generate() -> torch.Tensor:
        latent = start
        for time in TIMES:
            velocity = model(latent, timestep=torch.tensor([time]), **fixed)[0]
            latent = latent - velocity / len(TIMES)
        return latent

    return TinyHost(
        name="flux",
        model=model,
        forward=frozen(generate),
        binding="flux",
        source="diffusers.FluxTransformer2DModel",
        note=(
            "kept: both kinds of block, per-head norms, interleaved rotary pairs over three axes;"
            " small: 32-wide heads for 128, two blocks of each kind; no guidance embedding"
        ),
    )
