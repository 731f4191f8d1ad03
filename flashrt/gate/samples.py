"""A race's raw samples, read from a receipt and replayed under the rule that was declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flashrt.gate.reading import Malformed, array, check_integer, flag, integer, many, number, pair
from flashrt.gate.reading import text as text_of
from flashrt.race.decision import Decision, Interval, Question
from flashrt.race.protocol import SignTest
from flashrt.race.series import PAIRS_PER_BLOCK, Block, Order, Series, Stopped, ratios


@dataclass(frozen=True)
class Outcome:
    """What a series decided; the interval is None when too few samples bound a median."""

    decision: Decision
    seen: Interval | None
    stopped: Stopped


def _time(value: Any, path: str) -> int:
    return check_integer(value, path, 1)


def _times(value: Any, path: str) -> tuple[int, int]:
    return pair(value, path, _time)


def read_series(body: Any, path: str) -> Series:
    """A series from its JSON form. Raises :class:`Malformed`."""
    if text_of(body, "unit", path) != "ns":
        raise Malformed(f"{path}.unit", "ns was expected")
    pairs = many(body, "pairs", path, _times)
    blocks = array(body, "blocks", path)
    if len(pairs) != len(blocks) * PAIRS_PER_BLOCK:
        raise Malformed(f"{path}.pairs", f"{len(pairs)} pairs do not fill {len(blocks)} blocks")
    found = []
    for i, block in enumerate(blocks):
        where = f"{path}.blocks[{i}]"
        foreign = number(block, "foreign", where)
        order = text_of(block, "order", where)
        if not 0 <= foreign <= 1 or order not in {o.value for o in Order}:
            raise Malformed(where, "a share from 0 to 1 and an order were expected")
        both = (pairs[2 * i], pairs[2 * i + 1])
        found.append(Block(both, foreign, flag(block, "kept", where), Order(order)))
    stopped = text_of(body, "stopped", path)
    if stopped not in {s.value for s in Stopped}:
        raise Malformed(f"{path}.stopped", "no race ends like this")
    looks = many(body, "looks", path, check_integer)
    repeat = integer(body, "repeat", path, 1)
    return Series(tuple(found), looks, Stopped(stopped), repeat)


@dataclass(frozen=True)
class Sequence:
    """The declared part of a rule that a replay needs."""

    question: Question
    test: SignTest
    foreign_limit: float


def replay(series: Series, rule: Sequence, path: str) -> Outcome:
    """Ask the question again at every look the series had, as the race did.

    Raises :class:`Malformed` when the series cannot have come from this rule: a block kept under
    foreign load or dropped without it, a look that was not declared or was skipped, a race that
    went on after it was decided or says it was decided when it was not.
    """
    for i, block in enumerate(series.blocks):
        if block.kept is not (block.foreign <= rule.foreign_limit):
            raise Malformed(f"{path}.blocks[{i}].kept", "does not follow from the foreign load")
    kept = len(series.kept) * PAIRS_PER_BLOCK
    if series.looks != tuple(n for n in rule.test.looks if n <= kept):
        raise Malformed(f"{path}.looks", "are not the looks that were declared")
    values = ratios(series.kept)
    decision, seen = Decision.OPEN, None
    for look in series.looks:
        if decision is not Decision.OPEN:
            raise Malformed(f"{path}.looks", "the race went on after it was decided")
        seen, decision = rule.test.consult(rule.question, values[: look // PAIRS_PER_BLOCK])
    if (decision is Decision.OPEN) is (series.stopped is Stopped.DECIDED):
        raise Malformed(f"{path}.stopped", f"the samples are {decision.value}")
    if series.stopped is Stopped.DECIDED and kept != series.looks[-1]:
        raise Malformed(f"{path}.blocks", "samples were added after the decision")
    return Outcome(decision, seen, series.stopped)
