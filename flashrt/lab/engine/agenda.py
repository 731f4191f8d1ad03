"""What will end, and when: completions in order of time, then in the order they began."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from fractions import Fraction


class Agenda:
    """Completions that are due. Equal times keep the order in which the work was begun."""

    def __init__(self) -> None:
        self._heap: list[tuple[Fraction, int, Callable[[], None]]] = []
        self._begun = 0

    def at(self, time_us: Fraction, finish: Callable[[], None]) -> None:
        """``finish`` is due at this virtual time."""
        heapq.heappush(self._heap, (time_us, self._begun, finish))
        self._begun += 1

    @property
    def next_us(self) -> Fraction | None:
        """When the next completion is due, if any is."""
        return self._heap[0][0] if self._heap else None

    def pop(self) -> Callable[[], None]:
        """The next completion."""
        return heapq.heappop(self._heap)[2]
