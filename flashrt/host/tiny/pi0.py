"""PI0: PaliGemma reads the observation once, a Gemma expert refines an action chunk in steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flashrt.host.tiny import TinyHost
from flashrt.host.tiny.seeded import frozen, instance
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy
    import torch

_IMAGE = 95
_PATCHES = 4
CHUNK, STATE, ACTION, STEPS = 5, 8, 8, 2
_GEMMA: dict[str, Any] = {
    "model_type": "gemma",
    "vocab_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 128,
    "max_position_embeddings": 64,
}
_VISION: dict[str, Any] = {
    "model_type": "siglip_vision_model",
    "hidden_size": 144,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
    "vision_use_head": False,
}


def build() -> TinyHost:
    """One camera of four patches, a state, a five-step chunk; the forward samples in two steps."""
    import torch
    from transformers import PI0Config, PI0ForConditionalGeneration

    config = PI0Config(
        vlm_config={
            "model_type": "paligemma",
            "text_config": {**_GEMMA, "hidden_size": 64, "intermediate_size": 112},
            "vision_config": _VISION,
            "projection_dim": 64,
            "image_token_id": _IMAGE,
        },
        dit_config={**_GEMMA, "hidden_size": 48, "intermediate_size": 80},
        chunk_size=CHUNK,
        max_state_dim=STATE,
        max_action_dim=ACTION,
        num_inference_steps=STEPS,
    )
    model = instance(lambda: PI0ForConditionalGeneration(config))
    source = torch.Generator().manual_seed(2)
    inputs = {
        "state": torch.randn(1, STATE, generator=source),
        "input_ids": torch.tensor([[*[_IMAGE] * _PATCHES, 3, 5, 7]]),
        "pixel_values": torch.randn(1, 1, 3, 16, 16, generator=source),
        "noise": torch.randn(1, CHUNK, ACTION, generator=source),
        "attention_mask": torch.ones(1, _PATCHES + 3, dtype=torch.int64),
        "pixel_attention_mask": torch.ones(1, 1, dtype=torch.bool),
    }
    return TinyHost(
        name="pi0",
        model=model,
        forward=frozen(lambda: model.sample_actions(**inputs)),
        binding="pi05",
        source="transformers.PI0ForConditionalGeneration",
        note=(
            "kept: one key head for all queries, offset norms, an expert of another width than the"
            " prefix, a given noise window; small: widths, two layers each, two steps"
        ),
    )


def feed(
    model: torch.nn.Module, mean: numpy.ndarray, std: numpy.ndarray
) -> Callable[[Any], object]:
    """How a :class:`flashrt.calibration.lerobot.RobotFrame` becomes one generation of actions.

    As PI0's processor does it: images resized whole into the vision tower's square (bicubic) and
    scaled to -1 … 1, the state normalised by the dataset's ``mean`` and ``std`` (float64 [S]) and
    filled up with zeros, the task after the image tokens, one camera after the other. In place of
    a tokenizer each printable ASCII character is one of the tiny vocabulary's 95 tokens. The
    noise is drawn from the frame's digest, so that a frame always gives the same forward.
    """

    policy: Any = model

    def run(frame: Any) -> object:
        return policy.sample_actions(**inputs(model, frame, mean, std))

    return run


def inputs(
    model: torch.nn.Module, frame: Any, mean: numpy.ndarray, std: numpy.ndarray
) -> dict[str, torch.Tensor]:
    """The arguments of ``sample_actions`` for one frame; see :func:`feed`.

    Raises :class:`Refusal` (SHAPE) for a frame without a camera, a state that is wider than the
    model's, and a task too long for its positions.
    """
    import torch

    config: Any = model.config
    if not frame.images:
        raise Refusal(Reason.SHAPE, "the frame has no image", subject=frame.id)
    if len(mean) > config.max_state_dim:
        what = f"the state has {len(mean)} values and the host takes {config.max_state_dim}"
        raise Refusal(Reason.SHAPE, what, subject=frame.id)
    vision, text = config.vlm_config.vision_config, config.vlm_config.text_config
    pixels = [_square(frame.images[camera], vision.image_size) for camera in sorted(frame.images)]
    patches = (vision.image_size // vision.patch_size) ** 2
    tokens = [config.vlm_config.image_token_id] * patches * len(pixels)
    tokens += [(ord(c) if " " <= c <= "~" else ord("?")) - ord(" ") for c in frame.task]
    if len(tokens) + config.chunk_size + 1 > text.max_position_embeddings:
        what = f"{len(tokens)} positions of images and task are more than the host has room for"
        raise Refusal(Reason.SHAPE, what, subject=frame.id, do="a shorter task, or fewer cameras")
    state = torch.zeros(1, config.max_state_dim)
    scaled = (frame.state.astype("float64") - mean) / (std + 1e-8)
    state[0, : len(mean)] = torch.from_numpy(scaled).float()
    source = torch.Generator().manual_seed(int(frame.digest.removeprefix("sha256:")[:15], 16))
    return {
        "state": state,
        "input_ids": torch.tensor([tokens]),
        "pixel_values": torch.stack(pixels)[None],
        "noise": torch.randn(1, config.chunk_size, config.max_action_dim, generator=source),
        "attention_mask": torch.ones(1, len(tokens), dtype=torch.int64),
        "pixel_attention_mask": torch.ones(1, len(pixels), dtype=torch.bool),
    }


def _square(image: numpy.ndarray, size: int) -> torch.Tensor:
    """uint8 [H, W, 3] as float32 [3, size, size] in -1 … 1: the longer side fits, black beside."""
    import torch

    height, width = image.shape[:2]
    scale = size / max(height, width)
    small = (max(1, round(height * scale)), max(1, round(width * scale)))
    chw = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    resized = torch.nn.functional.interpolate(chw, small, mode="bicubic", antialias=True)
    square = torch.zeros(3, size, size)
    square[:, : small[0], : small[1]] = resized[0].clamp(0, 255)
    return square / 127.5 - 1
