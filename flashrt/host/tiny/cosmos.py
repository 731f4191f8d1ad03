"""Cosmos Predict: a video DiT whose rotary table is rotate-half, with low-rank modulation."""

from __future__ import annotations

from flashrt.host.tiny import TinyHost
from flashrt.host.tiny.seeded import frozen, instance

STEPS, TEXT_TOKENS = 2, 5
LATENT = (1, 16, 3, 4, 6)  # batch, channels, frames, height, width
TIMES = (0.9, 0.4)


def build() -> TinyHost:
    """Two blocks of four 24-wide heads; the forward is two Euler steps from a given latent."""
    import torch
    from diffusers import CosmosTransformer3DModel

    def make() -> CosmosTransformer3DModel:
        return CosmosTransformer3DModel(
            in_channels=LATENT[1],
            out_channels=LATENT[1],
            num_attention_heads=4,
            attention_head_dim=24,
            num_layers=2,
            mlp_ratio=2.0,
            text_embed_dim=32,
            adaln_lora_dim=16,
            max_size=(8, 16, 16),
            concat_padding_mask=False,
            extra_pos_embed_type=None,
        )

    model = instance(make)
    source = torch.Generator().manual_seed(2)
    text = torch.randn(1, TEXT_TOKENS, 32, generator=source)
    start = torch.randn(LATENT, generator=source)

    def generate() -> torch.Tensor:
        latent = start
        for time in TIMES:
            now = torch.tensor([time])
            velocity = model(latent, now, text, fps=24, return_dict=False)[0]
            latent = latent - velocity / STEPS
        return latent

    return TinyHost(
        name="cosmos",
        model=model,
        forward=frozen(generate),
        binding="cosmos",
        source="diffusers.CosmosTransformer3DModel",
        note=(
            "the class of Cosmos Predict, not of Cosmos3 (that is the host cosmos3). Kept:"
            " per-head norms, rotate-half over three axes, low-rank modulation, no biases; small:"
            " widths, blocks, steps; without the padding-mask channel, which needs torchvision"
        ),
    )
