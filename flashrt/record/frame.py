"""FrameRecord: one window of data, by its name and content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FrameRecord:
    """One frame that was run: a request without arrival, since frames run one after the other.

    ``positions`` are tokens of text, or 1 for one observation of a robot; ``task``, ``episode`` and
    ``index`` are a robot's.
    """

    id: str
    digest: str
    positions: int
    task: str | None = None
    episode: str | None = None
    index: int | None = None

    def record(self) -> dict[str, Any]:
        """JSON form; what a frame of text does not have is left out."""
        body = {"id": self.id, "digest": self.digest, "positions": self.positions}
        robot = {"task": self.task, "episode": self.episode, "index": self.index}
        return body | {name: value for name, value in robot.items() if value is not None}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> FrameRecord:
        """The inverse of :meth:`record`."""
        return cls(
            id=record["id"],
            digest=record["digest"],
            positions=record["positions"],
            task=record.get("task"),
            episode=record.get("episode"),
            index=record.get("index"),
        )
