"""DINOv2-small with its real weights, as a package ships them: the one host here not made small."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashrt.host.tiny import TinyHost
from flashrt.host.tiny.seeded import frozen

if TYPE_CHECKING:
    import torch

SIDE = 224


def build() -> TinyHost:
    """The converted model; the forward reads one synthetic image. Refuses where it is absent."""
    import torch
    from transformers import Dinov2Model
    from transformers.utils import logging

    from flashrt.host.dinov2 import folder
    from flashrt.host.load import CACHE

    path, provenance = folder(CACHE)
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model = Dinov2Model.from_pretrained(path, dtype=torch.float32).eval()
    finally:
        if shown:
            logging.enable_progress_bar()
    model.requires_grad_(False)
    image = picture()
    return TinyHost(
        name="dinov2",
        model=model,
        forward=frozen(lambda: model(pixel_values=image)),
        binding="dinov2",
        source="transformers.Dinov2Model",
        note=f"real weights ({provenance}); the image is synthetic: no installed package has one",
    )


def picture() -> torch.Tensor:
    """A synthetic image [1, 3, 224, 224]: a lit disc on a shaded ground, normalised as trained."""
    import torch

    line = torch.linspace(-1, 1, SIDE)
    down, across = torch.meshgrid(line, line, indexing="ij")
    ground = torch.stack([(across + 1) / 2, (down + 1) / 2, (1 - across * down) / 2])
    distance = ((across - 0.2) ** 2 + (down + 0.1) ** 2).sqrt()
    light = (0.5 - distance).clamp(min=0) * 2
    image = torch.where(distance < 0.5, light.expand(3, -1, -1), ground * 0.8)
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    spread = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    return ((image - mean) / spread)[None]
