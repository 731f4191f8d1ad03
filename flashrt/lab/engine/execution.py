"""What one run of the engine leaves as evidence."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from flashrt.lab.records import (
    ApiError,
    CacheComputation,
    CacheEvent,
    LedgerRow,
    RunOutcome,
    TokenSelection,
)


@dataclass(frozen=True)
class Execution:
    """Evidence in order: events by number, outcomes and ledger by submission.

    ``errors`` are actions that were rejected and made no outcome. Times are exact virtual
    microseconds, of the first and the last event. Where a :class:`Tally` kept the evidence, events,
    computations and selections are empty.
    """

    events: tuple[CacheEvent, ...]
    computations: tuple[CacheComputation, ...]
    selections: tuple[TokenSelection, ...]
    outcomes: tuple[RunOutcome, ...]
    errors: tuple[ApiError, ...]
    ledger: tuple[LedgerRow, ...]
    started_us: Fraction
    ended_us: Fraction

    def outcome(self, request_id: str) -> RunOutcome:
        """What came of one request. Raises ``KeyError``."""
        return _of(self.outcomes, request_id)

    def row(self, request_id: str) -> LedgerRow:
        """Its line in the ledger. Raises ``KeyError``."""
        return _of(self.ledger, request_id)


Line = TypeVar("Line", RunOutcome, LedgerRow)


def _of(lines: tuple[Line, ...], request_id: str) -> Line:
    for line in lines:
        if line.request_id == request_id:
            return line
    raise KeyError(request_id)
