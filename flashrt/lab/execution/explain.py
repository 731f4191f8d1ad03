"""Why a request took as long as it did: its causal chain, whose segments sum to the latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from flashrt.document.problem import InputError
from flashrt.lab.execution.file import StoredExecution
from flashrt.lab.records import CacheEvent, EventKind, ExecutionRecord
from flashrt_runtime.reason import Reason

ENDS = ("completed", "cancelled", "failed", "refused")
# What a request was doing until an event of this kind came.
_SPENT: Mapping[EventKind, str] = {
    "admitted": "wait for admission",
    "transfer_started": "wait for the link",
    "transfer_completed": "transfer",
    "compute_started": "wait for its turn",
    "compute_completed": "service",
    "consumed": "wait for the customer",
}
# What it was waiting for when it was cancelled, where that was not its turn.
_BEGUN: Mapping[EventKind, str] = {
    "action": "wait for admission",
    "arrival": "wait for admission",
    "queued": "wait for admission",
    "cache_hit": "wait for its turn or the link",
    "transfer_started": "transfer",
}


@dataclass(frozen=True)
class Segment:
    """What lies between two events of one chain; ``us`` is exact virtual time.

    ``also`` are the later event's other causes: what it waited for, where it waited.
    """

    first: CacheEvent
    last: CacheEvent
    also: tuple[CacheEvent, ...] = ()

    @property
    def us(self) -> Fraction:
        """How long it took."""
        return self.last.time_us - self.first.time_us

    @property
    def spent(self) -> str:
        """What the time was spent on: by the event that ended it, else by the one it began with."""
        if self.first.kind == "publication_blocked":
            return "wait for the customer"
        return _SPENT.get(self.last.kind) or _BEGUN.get(self.first.kind, "wait for its turn")


@dataclass(frozen=True)
class Chain:
    """One request from its arrival to its end, step by step."""

    request_id: str
    segments: tuple[Segment, ...]
    arrival: CacheEvent
    end: CacheEvent

    @property
    def latency_us(self) -> Fraction:
        """From its arrival to its end, by the two events alone."""
        return self.end.time_us - self.arrival.time_us

    @property
    def total_us(self) -> Fraction:
        """The segments' sum."""
        return sum((one.us for one in self.segments), Fraction(0))

    def spent(self) -> dict[str, Fraction]:
        """Time by what it was spent on, in the order in which each was met."""
        found: dict[str, Fraction] = {}
        for one in self.segments:
            if one.us:
                found[one.spent] = found.get(one.spent, Fraction(0)) + one.us
        return found


def explain(stored: StoredExecution, request_id: str) -> Chain:
    """The causal chain of a request.

    An event's first cause is its request's own step before, so the walk from the end leads to the
    arrival. Raises :class:`InputError`: UNKNOWN_CELL for a request that is not there; VERDICT where
    the chain breaks off, or its sum is not the latency that the ledger says.
    """
    record = stored.record
    end = _end(stored, request_id)
    segments: list[Segment] = []
    last = end
    while last.causes:
        first = _before(record.events, last, last.causes[0])
        if first is None or first.request_id != request_id:
            raise _broken(stored, last, "its first cause is no step of the request before it")
        others = (_before(record.events, last, number) for number in last.causes[1:])
        segments.append(Segment(first, last, tuple(one for one in others if one is not None)))
        last = first
    chain = Chain(request_id, tuple(reversed(segments)), last, end)
    _require_sum(stored, chain)
    return chain


def _before(events: Sequence[CacheEvent], last: CacheEvent, number: int) -> CacheEvent | None:
    """The event of a number, which must come before ``last``: so that every walk ends."""
    if not 0 <= number < min(last.event_id, len(events)):
        return None
    return events[number] if events[number].event_id == number else None


def _end(stored: StoredExecution, request_id: str) -> CacheEvent:
    mine = [e for e in stored.record.events if e.request_id == request_id and e.kind in ENDS]
    if mine:
        return mine[-1]
    known = sorted(stored.outcomes)
    shown = ", ".join(known[:10]) + (f" and {len(known) - 10} more" if len(known) > 10 else "")
    what = f"no request {request_id!r} ended here"
    do = f"name one of {shown}"
    raise InputError(stored.file, 1, "$.outcomes", what, do, reason=Reason.UNKNOWN_CELL)


def _require_sum(stored: StoredExecution, chain: Chain) -> None:
    if chain.arrival.kind not in ("arrival", "action"):
        raise _broken(stored, chain.arrival, f"a chain begins with {chain.arrival.kind}")
    ledger = latency_by_ledger(stored.record, chain.request_id)
    if not chain.total_us == chain.latency_us == ledger:
        what = f"the segments sum to {chain.total_us} us and the ledger says {ledger} us"
        raise _broken(stored, chain.end, what)


def latency_by_ledger(record: ExecutionRecord, request_id: str) -> Fraction | None:
    """The latency that a record's ledger says, ``None`` without a row."""
    rows = [row for row in record.ledger if row.request_id == request_id]
    return rows[0].latency_us if rows else None


def _broken(stored: StoredExecution, event: CacheEvent, what: str) -> InputError:
    path = f"$.events[{event.event_id}]"
    do = "see `flashrt lab verify`"
    return InputError(stored.file, 1, path, what, do, reason=Reason.VERDICT)
