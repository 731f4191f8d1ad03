"""Real tokens for a captured step: what is judged, and what is rotated while timing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.capture import Stage

EVERY_FAR = 4


@dataclass(frozen=True)
class Turn:
    """One timed run's inputs: ``token_ids [1, rows]`` and ``positions [rows]``.

    ``judged`` names the frame and the step whose output parity judged; None far from there.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    judged: tuple[str, int] | None

    def load(self, stage: Stage) -> None:
        """Write the inputs into the stage's windows."""
        stage.windows["token_ids"].copy_(self.token_ids)
        stage.windows["positions"].copy_(self.positions)

    def intact(self, stage: Stage) -> bool:
        """Whether the windows still hold what was written into them."""
        import torch

        token_ids, positions = stage.windows["token_ids"], stage.windows["positions"]
        same = torch.equal(token_ids.cpu(), self.token_ids)
        return same and torch.equal(positions.cpu(), self.positions)


class Feed:
    """The rotation of real held-out tokens and positions that a race feeds to both arms.

    Every sample sees other inputs than the one before, so that a result kept from an earlier
    replay cannot pass for work. Three turns of four walk through the judged frames, step by step
    from position 0, exactly as parity does: the output of such a turn is known bit for bit, if the
    stage is given the turns in their order. Every fourth turn reads and writes the second half of
    the cache, which no judged step can see.
    """

    def __init__(self, frames: Mapping[str, torch.Tensor], rows: int, context: int) -> None:
        near = [
            (name, step, tokens)
            for name, frame in frames.items()
            for step, tokens in enumerate(_steps(frame, rows))
            if (step + 1) * rows <= context
        ]
        self.rows = rows
        self.turns = _interleaved(near, rows, context)

    def turn(self, index: int) -> Turn:
        """The rotation's turn ``index``, which starts again after its last one."""
        return self.turns[index % len(self.turns)]


def _steps(frame: torch.Tensor, rows: int) -> list[torch.Tensor]:
    flat = frame.reshape(-1)
    return list(flat[: flat.numel() // rows * rows].split(rows))


def _interleaved(
    near: list[tuple[str, int, torch.Tensor]], rows: int, context: int
) -> tuple[Turn, ...]:
    """The judged steps in order, with a far turn after every third one where there is room."""
    import torch

    first = max(context // 2, rows * (1 + max(step for _, step, _ in near)))
    room = context - rows - first  # far turns start from ``first`` to ``first + room``
    turns: list[Turn] = []
    for count, (name, step, tokens) in enumerate(near, start=1):
        start = step * rows
        places = torch.arange(start, start + rows)
        turns.append(Turn(tokens[None], places, (name, step)))
        if count % (EVERY_FAR - 1) == 0 and room >= 0:
            start = first + (count // (EVERY_FAR - 1) - 1) % (room + 1)
            far = near[(count + len(near) // 2) % len(near)][2]
            turns.append(Turn(far[None], torch.arange(start, start + rows), None))
    if len(turns) == 1:  # the only step has to alternate with another one
        token_ids = turns[0].token_ids
        other = torch.where(token_ids > 0, token_ids - 1, 1)
        turns.append(Turn(other, turns[0].positions, None))
    return tuple(turns)


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
        parts.append(logits(out)[0].clone())
    return torch.cat(parts)


def logits(out: object) -> torch.Tensor:
    """The logits ``[1, rows, vocabulary]`` that a step returns, alone or first of several."""
    import torch

    if isinstance(out, torch.Tensor):
        return out
    if isinstance(out, (tuple, list)):
        return out[0]
    raise TypeError(f"a step returns logits, not {type(out).__name__}")
