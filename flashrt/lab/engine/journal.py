"""Where evidence goes while an execution runs, and the virtual clock it is stamped with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Protocol

from flashrt.lab.records import CacheComputation, CacheEvent, EventKind, TokenSelection


class Keeper(Protocol):
    """Takes evidence as it comes."""

    def event(self, event: CacheEvent) -> None:
        """One occurrence."""

    def computation(self, computation: CacheComputation) -> None:
        """One forward computation."""

    def selection(self, make: Callable[[], TokenSelection]) -> None:
        """One choice, which ``make`` gives to who wants it."""


class Everything:
    """Keeps all evidence."""

    def __init__(self) -> None:
        self.events: list[CacheEvent] = []
        self.computations: list[CacheComputation] = []
        self.selections: list[TokenSelection] = []

    def event(self, event: CacheEvent) -> None:
        """Kept."""
        self.events.append(event)

    def computation(self, computation: CacheComputation) -> None:
        """Kept."""
        self.computations.append(computation)

    def selection(self, make: Callable[[], TokenSelection]) -> None:
        """Kept."""
        self.selections.append(make())


class Tally:
    """Counts evidence and keeps none of it: for workloads whose outcomes are what matters."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.computations = 0
        self.selections = 0

    @property
    def events(self) -> int:
        """How many events there were."""
        return self.kinds.total()

    def event(self, event: CacheEvent) -> None:
        """Counted by kind."""
        self.kinds[event.kind] += 1

    def computation(self, computation: CacheComputation) -> None:
        """Counted."""
        self.computations += 1

    def selection(self, make: Callable[[], TokenSelection]) -> None:
        """Counted."""
        self.selections += 1


class Journal:
    """Numbers and stamps events. ``now`` is in exact virtual microseconds and never goes back.

    ``watch`` is called after each event, when the engine is consistent again.
    """

    def __init__(self, keeper: Keeper, watch: Callable[[CacheEvent], None] | None) -> None:
        self.keeper = keeper
        self.now = Fraction(0)
        self.count = 0
        self._watch = watch

    def write(
        self,
        kind: EventKind,
        causes: tuple[int, ...],
        request_id: str | None = None,
        *,
        work_id: str | None = None,
        state: str | None = None,
        amount: int | None = None,
        positions: int | None = None,
        place: str | None = None,
    ) -> int:
        """Record an occurrence at ``now``; its number. ``amount`` is in bytes.

        Causes that are the same event, or none (-1), are written once or not at all.
        """
        number = self.count
        known = tuple(dict.fromkeys(cause for cause in causes if cause >= 0))
        event = CacheEvent(
            number,
            known,
            kind,
            self.now,
            request_id,
            work_id,
            state,
            amount,
            positions,
            place,
        )
        self.count += 1
        self.keeper.event(event)
        if self._watch is not None:
            self._watch(event)
        return number
