"""One observation of a robot: what its cameras saw, its state, and what it was told to do."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy


@dataclass(frozen=True)
class RobotFrame:
    """``images`` are uint8 [height, width, 3] by camera, ``state`` is float32 [S], raw.

    ``id`` is ``episode_000012#000034`` and sorts as the numbers do; ``position`` is the frame's
    index in its episode. ``digest`` is over the pixels, the state and the task, so that one frame
    has one digest in every layout.
    """

    id: str
    task: str
    episode: str
    position: int
    images: Mapping[str, numpy.ndarray]
    state: numpy.ndarray
    digest: str

    @property
    def strata(self) -> tuple[str, str]:
        """Where the frame sits, coarsest first: (task, episode)."""
        return (self.task, self.episode)

    def record(self) -> dict[str, Any]:
        """JSON form: ``{"id", "digest", "positions", "task", "episode", "index"}``."""
        return {
            "id": self.id,
            "digest": self.digest,
            "positions": 1,  # one observation
            "task": self.task,
            "episode": self.episode,
            "index": self.position,
        }


def frame_id(episode: str, position: int) -> str:
    """``episode_000012#000034``."""
    return f"{episode}#{position:06d}"


def content_digest(images: Mapping[str, numpy.ndarray], state: numpy.ndarray, task: str) -> str:
    """``sha256:<hex>`` over every camera's name, size and pixels, the state and the task."""
    digest = hashlib.sha256()
    for camera, pixels in sorted(images.items()):
        digest.update(f"{camera}\0{list(pixels.shape)}\0".encode())
        digest.update(pixels.tobytes())
    digest.update(f"state\0{list(state.shape)}\0".encode())
    digest.update(state.astype("<f4").tobytes())
    digest.update(b"task\0" + task.encode())
    return "sha256:" + digest.hexdigest()
