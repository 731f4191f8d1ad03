"""Which prefixes were computed before in this execution, exactly."""

from __future__ import annotations

from collections.abc import Iterable


class Seen:
    """A tree of token ids: each computed position is one step from the position before it."""

    def __init__(self) -> None:
        self._steps: dict[tuple[int, int], int] = {}

    def follow(self, at: int, ids: Iterable[int]) -> tuple[int, int]:
        """Go on from ``at`` (0: the beginning): where that leads, and how many steps were new."""
        new = 0
        for token in ids:
            step = self._steps.get((at, token))
            if step is None:
                step = self._steps[(at, token)] = len(self._steps) + 1
                new += 1
            at = step
        return at, new
