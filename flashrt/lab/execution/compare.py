"""Two executions side by side: what was asked differently, where they part, what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import zip_longest
from typing import Any

from flashrt.lab.execution.binding import Binding
from flashrt.lab.execution.difference import Difference, differences
from flashrt.lab.execution.file import CONSUMED, StoredExecution
from flashrt.lab.records import CacheEvent, ExecutionRecord, RunOutcome
from flashrt_runtime.reason import Because


@dataclass(frozen=True)
class Parting:
    """The first event that differs; ``None`` on the side that had ended before."""

    number: int
    first: CacheEvent | None
    second: CacheEvent | None

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "event": self.number,
            "first": self.first.record() if self.first else None,
            "second": self.second.record() if self.second else None,
        }


@dataclass(frozen=True)
class Answer:
    """One request in both: whether its published tokens and its end are the same, and when."""

    request_id: str
    identical: bool
    first: RunOutcome | None
    second: RunOutcome | None
    latency_us: tuple[Fraction | None, Fraction | None]


@dataclass(frozen=True)
class Comparison:
    """What tells two executions apart.

    ``parting`` is the first event that differs in anything, ``untimed`` the first that differs in
    more than its time. ``scores`` counts the choices of both whose logits are equal bit for bit,
    and all choices that both made.
    """

    consumed: tuple[Difference, ...]
    bindings: tuple[Because, ...]
    parting: Parting | None
    untimed: Parting | None
    answers: tuple[Answer, ...]
    scores: tuple[int, int]

    @property
    def outputs_identical(self) -> bool:
        """Whether every request published the same tokens and ended for the same reason."""
        return all(one.identical for one in self.answers)


def compare(first: StoredExecution, second: StoredExecution) -> Comparison:
    """Compare two executions; nothing is run."""
    one, other = first.record, second.record
    return Comparison(
        consumed=tuple(_consumed(first, second)),
        bindings=tuple(Binding.of(one).against(Binding.of(other))),
        parting=part(one.events, other.events),
        untimed=part(one.events, other.events, lambda event: replace(event, time_us=Fraction(0))),
        answers=tuple(_answers(first, second)),
        scores=_scores(one, other),
    )


def part(
    first: Iterable[CacheEvent],
    second: Iterable[CacheEvent],
    seen: Callable[[CacheEvent], CacheEvent] = lambda event: event,
) -> Parting | None:
    """The first event that differs as ``seen``; ``None`` where both sequences are the same."""
    for number, (one, other) in enumerate(zip_longest(first, second)):
        if one is None or other is None or seen(one) != seen(other):
            return Parting(number, one, other)
    return None


def _consumed(first: StoredExecution, second: StoredExecution) -> Iterator[Difference]:
    for name in CONSUMED:
        if name != "specification":  # the system says the same, by field
            yield from differences(first.body[name], second.body[name], f"$.{name}")


def _answers(first: StoredExecution, second: StoredExecution) -> Iterator[Answer]:
    one, other = first.outcomes, second.outcomes
    times = [{row.request_id: row.latency_us for row in s.record.ledger} for s in (first, second)]
    for name in dict.fromkeys((*one, *other)):
        a, b = one.get(name), other.get(name)
        same = a is not None and b is not None and _said(a) == _said(b)
        yield Answer(name, same, a, b, (times[0].get(name), times[1].get(name)))


def _said(outcome: RunOutcome) -> tuple[Any, ...]:
    return (outcome.published_ids, outcome.stop_reason, outcome.complete)


def _scores(first: ExecutionRecord, second: ExecutionRecord) -> tuple[int, int]:
    one = {(s.request_id, s.step): s.raw_logits for s in first.selections}
    other = {(s.request_id, s.step): s.raw_logits for s in second.selections}
    both = one.keys() & other.keys()
    return sum(one[key] == other[key] for key in both), len(both)
