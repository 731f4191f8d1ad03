"""DiT: class-conditional image generation with zero-initialised modulation, 72-wide heads."""

from __future__ import annotations

from flashrt.host.tiny import TinyHost
from flashrt.host.tiny.seeded import frozen, instance

STEPS, SIDE, CHANNELS = 2, 8, 4
TIMES = (900, 400)


def build() -> TinyHost:
    """Two blocks of one 72-wide head; the forward is two Euler steps from a given latent."""
    import torch
    from diffusers import DiTTransformer2DModel

    def make() -> DiTTransformer2DModel:
        return DiTTransformer2DModel(
            num_attention_heads=1,
            attention_head_dim=72,
            in_channels=CHANNELS,
            num_layers=2,
            sample_size=SIDE,
            num_embeds_ada_norm=10,
        )

    model = instance(make)
    source = torch.Generator().manual_seed(2)
    start = torch.randn(1, CHANNELS, SIDE, SIDE, generator=source)
    label = torch.tensor([3])

    def generate() -> torch.Tensor:
        latent = start
        for time in TIMES:
            noise = model(latent, torch.tensor([time]), label, return_dict=False)[0]
            latent = latent - noise / STEPS
        return latent

    return TinyHost(
        name="dit",
        model=model,
        forward=frozen(generate),
        binding="dit",
        source="diffusers.DiTTransformer2DModel",
        note="kept: 72-wide heads, biases everywhere, tables per block; small: a head, two blocks",
    )
