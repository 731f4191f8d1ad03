"""Wan2.2: a video DiT with modulated self-attention and cross-attention to the text."""

from __future__ import annotations

from flashrt.host.tiny import TinyHost
from flashrt.host.tiny.seeded import frozen, instance

STEPS, TEXT_TOKENS = 2, 5
LATENT = (1, 16, 3, 4, 6)  # batch, channels, frames, height, width
TIMES = (1000.0, 500.0)


def build() -> TinyHost:
    """Two blocks of four 24-wide heads; the forward is two Euler steps from a given latent."""
    import torch
    from diffusers import WanTransformer3DModel

    def make() -> WanTransformer3DModel:
        return WanTransformer3DModel(
            patch_size=(1, 2, 2),
            num_attention_heads=4,
            attention_head_dim=24,
            in_channels=LATENT[1],
            out_channels=LATENT[1],
            text_dim=32,
            freq_dim=32,
            ffn_dim=256,
            num_layers=2,
            rope_max_seq_len=16,
        )

    model = instance(make)
    source = torch.Generator().manual_seed(2)
    text = torch.randn(1, TEXT_TOKENS, 32, generator=source)
    start = torch.randn(LATENT, generator=source)

    def generate() -> torch.Tensor:
        latent = start
        for time in TIMES:
            velocity = model(latent, torch.tensor([time]), text, return_dict=False)[0]
            latent = latent - velocity / STEPS
        return latent

    return TinyHost(
        name="wan22",
        model=model,
        forward=frozen(generate),
        binding="wan22",
        source="diffusers.WanTransformer3DModel",
        note=(
            "one expert of Wan2.2 A14B (one time a request; the two experts have this tree each)."
            " The 5B text-and-image variant gives every token its own time, so its tables have one"
            " more axis; the animate and speech variants add modules. Kept: norms over all heads,"
            " interleaved rotary pairs over three axes, fp32 norms; small: widths, blocks, steps"
        ),
    )
