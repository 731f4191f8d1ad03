"""Cosmos3: text and video tokens in two towers, joined in one factored attention per layer."""

from __future__ import annotations

from typing import Any

from flashrt.host.tiny import TinyHost
from flashrt.host.tiny.seeded import frozen, instance

STEPS, TEXT_TOKENS, CHANNELS = 2, 5, 4
FRAMES, HEIGHT, WIDTH = 2, 2, 3  # in patches
TIMES = (1000.0, 500.0)


def build() -> TinyHost:
    """Two layers, four query heads over two of 128; the forward is two Euler steps of a video."""
    import torch
    from diffusers import Cosmos3OmniTransformer

    def make() -> Cosmos3OmniTransformer:
        return Cosmos3OmniTransformer(
            hidden_size=64,
            intermediate_size=112,
            head_dim=128,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_hidden_layers=2,
            latent_channel=CHANNELS,
            latent_patch_size=2,
            patch_latent_dim=4 * CHANNELS,
            vocab_size=96,
        )

    model = instance(make)
    source = torch.Generator().manual_seed(2)
    start = torch.randn(1, CHANNELS, FRAMES, 2 * HEIGHT, 2 * WIDTH, generator=source)
    fixed = _layout()
    tokens = fixed["vision_sequence_indexes"].numel()

    def generate() -> torch.Tensor:
        latent = start
        for time in TIMES:
            times = torch.full((tokens,), time)
            given = {**fixed, "vision_tokens": [latent], "vision_timesteps": times}
            latent = latent - model(**given, return_dict=False)[0][0] / STEPS
        return latent

    return TinyHost(
        name="cosmos3",
        model=model,
        forward=frozen(generate),
        binding="cosmos3",
        source="diffusers.Cosmos3OmniTransformer",
        note=(
            "the Qwen3 backbone (silu); the Nemotron one has a squared-relu feed-forward and no"
            " text norms. Kept: 128-wide per-head norms, two queries a key, a causal and a full"
            " pack; small: widths, layers, steps; without sound and action heads"
        ),
    )


def _layout() -> dict[str, Any]:
    """Where text and video sit in the joint sequence, with three position axes."""
    import torch

    grid = FRAMES * HEIGHT * WIDTH
    total = TEXT_TOKENS + grid
    video = torch.arange(TEXT_TOKENS, total)
    flat = torch.arange(grid)
    axes = torch.stack([flat // (HEIGHT * WIDTH), flat // WIDTH % HEIGHT, flat % WIDTH])
    text = torch.arange(TEXT_TOKENS)
    return {
        "input_ids": (text * 7 + 3) % 96,
        "text_indexes": text,
        "position_ids": torch.cat([text.expand(3, -1), axes + TEXT_TOKENS], dim=1),
        "und_len": TEXT_TOKENS,
        "sequence_length": total,
        "vision_token_shapes": [(FRAMES, HEIGHT, WIDTH)],
        "vision_sequence_indexes": video,
        "vision_mse_loss_indexes": video,
        "vision_noisy_frame_indexes": [torch.arange(FRAMES)],
    }
