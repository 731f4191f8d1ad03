"""Every request that was submitted: those alive, and what came of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from flashrt.lab.engine.executor import State
from flashrt.lab.engine.invocation import Invocation, Phase
from flashrt.lab.engine.journal import Journal
from flashrt.lab.engine.residency import Residency
from flashrt.lab.records import ApiError, EventKind, LedgerRow, RunOutcome, StopReason

ENDS: dict[StopReason, EventKind] = {
    "turn_end": "completed",
    "budget": "completed",
    "context_limit": "completed",
    "cancelled": "cancelled",
    "refused": "refused",
    "failed": "failed",
}


@dataclass
class Register:
    """Live requests by id, and outcomes of ended ones.

    ``submitted`` = live + completed + cancelled + refused at every event. ``refused`` counts every
    request that ended by an error: before it was queued, or while it was executed.
    """

    journal: Journal
    residency: Residency
    display: Callable[[tuple[int, ...]], str]
    retention: str = "none"
    live: dict[str, Invocation] = field(default_factory=dict)
    outcomes: dict[str, RunOutcome] = field(default_factory=dict)
    ledger: dict[str, LedgerRow] = field(default_factory=dict)
    errors: list[ApiError] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    read: dict[str, int] = field(default_factory=dict)
    accepted: int = 0
    submitted: int = 0
    completed: int = 0
    cancelled: int = 0
    refused: int = 0

    def add(self, invocation: Invocation) -> None:
        """A request was submitted."""
        self.live[invocation.request_id] = invocation
        self.order.append(invocation.request_id)
        self.submitted += 1

    def consumed(self, request_id: str) -> int | None:
        """Tokens that its customer has consumed, or ``None`` when it was never submitted."""
        invocation = self.live.get(request_id)
        if invocation is not None:
            return invocation.consumed
        return self.read.get(request_id, 0) if request_id in self.outcomes else None

    def end(
        self,
        invocation: Invocation,
        stop: StopReason,
        causes: tuple[int, ...],
        error: ApiError | None,
        leave: Callable[[Invocation, int], None],
    ) -> None:
        """A request ended: its last event and its outcome; ``leave`` takes it out of the schedule.

        What it held is given back. One that completed leaves its state in the cache.
        """
        request_id = invocation.request_id
        ended = self.journal.write(ENDS[stop], causes, request_id)
        completed = ENDS[stop] == "completed"
        invocation.phase = Phase.ENDED
        leave(invocation, ended)
        del self.live[request_id]
        if invocation.consumed:
            self.read[request_id] = invocation.consumed
        self.completed += completed
        self.cancelled += stop == "cancelled"
        self.refused += stop in ("refused", "failed")
        published = tuple(invocation.published)
        self.outcomes[request_id] = RunOutcome(
            request_id,
            len(published),
            stop,
            stop in ("turn_end", "budget"),
            published,
            invocation.selected,
            invocation.budget - invocation.selected,
            self.display(published),
            error,
        )
        self.ledger[request_id] = LedgerRow(
            request_id,
            invocation.reused,
            invocation.recomputed,
            invocation.computed,
            invocation.transferred,
            invocation.transferred_bytes,
            self.journal.now - invocation.arrival_us,
        )
        if invocation.reserved:
            left = self._left(invocation) if completed else None
            self.residency.release(invocation, left, ended)

    def _left(self, invocation: Invocation) -> State | None:
        if self.retention == "exact_final_lru":
            return invocation.state
        return invocation.kept if self.retention == "exact_prefix_lru" else None
