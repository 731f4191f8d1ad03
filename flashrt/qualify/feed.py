"""Real tokens for a captured step: what is judged, and what is rotated while timing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.capture import Stage


class Feed:
    """Rotates real held-out tokens and positions through a stage's windows between samples.

    Every sample sees other tokens than the one before, so that a result kept from an earlier
    replay cannot pass for work. Positions walk over the second half of the cache.
    """

    def __init__(self, frames: Sequence[torch.Tensor], rows: int, context: int) -> None:
        import torch

        stream = torch.cat([f.reshape(-1) for f in frames])
        usable = stream.numel() // rows * rows
        self._tokens = stream[:usable].reshape(-1, rows)
        self._rows, self._context = rows, context
        self._turn = 0

    def turn(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The next ``(token_ids [1, rows], positions [rows])``."""
        import torch

        tokens = self._tokens[self._turn % self._tokens.shape[0]]
        room = self._context - self._rows
        start = (room // 2 + self._turn) % (room + 1) if room else 0
        self._turn += 1
        return tokens[None], torch.arange(start, start + self._rows)

    def load(self, stages: Sequence[Stage]) -> None:
        """Write the next inputs into the windows of every stage given (the same for each)."""
        tokens, positions = self.turn()
        for stage in stages:
            stage.windows["token_ids"].copy_(tokens)
            stage.windows["positions"].copy_(positions)


def logits_of(stage: Stage, tokens: torch.Tensor, rows: int) -> torch.Tensor:
    """Logits ``[positions, vocabulary]`` of one frame, run through a captured step.

    The frame is fed ``rows`` tokens at a time from position 0, each step seeing the cache that
    the steps before it wrote; ``len(tokens)`` must be a multiple of ``rows``.
    """
    import torch

    parts = []
    for start in range(0, tokens.numel(), rows):
        out = stage.replay(
            token_ids=tokens[start : start + rows][None],
            positions=torch.arange(start, start + rows),
        )
        parts.append(_logits(out)[0].clone())
    return torch.cat(parts)


def _logits(out: object) -> torch.Tensor:
    import torch

    if isinstance(out, torch.Tensor):
        return out
    if isinstance(out, (tuple, list)):
        return out[0]
    raise TypeError(f"a step returns logits, not {type(out).__name__}")
