"""The versions of the race's protocol. A receipt names the one that it was raced under.

1: blocks' orders are shuffled in twos, and every look gets an equal part of the error rate.
2: every block's order is a fair coin, the boundaries are exact (:mod:`flashrt.race.paths`), and a
   win must hold in the first half of the blocks and in the second one.

The coin is what makes the sign test hold on a machine that drifts, spikes or remembers: whatever
the four positions of a block do to the samples that run in them, the coin turns it for one arm or
for the other with equal chance, whatever happened before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction

from flashrt.race import paths
from flashrt.race.decision import Decision, Interval, Question, between, lower_rank
from flashrt.race.series import PAIRS_PER_BLOCK


class Protocol(IntEnum):
    """A version: how orders are drawn, when the rule is consulted, and how error is spent."""

    EVEN = 1
    PATHS = 2

    @property
    def looks(self) -> tuple[int, ...]:
        """The declared looks of a whole race, in kept pairs."""
        return _LOOKS[self]


_LOOKS = {
    Protocol.EVEN: (20, 40, 80, 160, 320, 640),
    Protocol.PATHS: (
        *range(20, 40, 4),
        *range(40, 100, 10),
        *range(100, 200, 20),
        *range(200, 400, 40),
        *range(400, 641, 80),
    ),
}
CURRENT = Protocol.PATHS


@dataclass(frozen=True)
class SignTest:
    """A question's statistics: version, one-sided error rate of the whole series, looks in pairs.

    A number of values that is no look bounds nothing under version 2.
    """

    protocol: Protocol
    alpha: Fraction
    looks: tuple[int, ...]

    def interval(self, values: Sequence[float]) -> Interval | None:
        """The bounds of the median of the blocks' ratios at a look; None if there are none."""
        if self.protocol is Protocol.EVEN:
            return between(values, lower_rank(len(values), self.alpha / len(self.looks)))
        blocks = tuple(look // PAIRS_PER_BLOCK for look in self.looks)
        return between(values, paths.rank(self.alpha, blocks, len(values)))

    def consult(
        self, question: Question, values: Sequence[float]
    ) -> tuple[Interval | None, Decision]:
        """What ``values``, all kept blocks up to a look in time order, say to the question."""
        seen = self.interval(values)
        if seen is None:
            return None, Decision.OPEN
        decision = question.ask(seen)
        if decision is Decision.WIN and self.protocol is not Protocol.EVEN:
            half = len(values) // 2
            if not all(question.holds(part) for part in (values[:half], values[half:])):
                decision = Decision.OPEN
        return seen, decision
