"""Where a series changes: Pettitt's rank test for one change of level, and neighbours' memory.

Rank tests, so that a spike is one rank and no more; quotients of integers, so that every machine
that recomputes them gets the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from flashrt.race.decision import median

LEAST_VALUES = 8
LIMIT = 7.6  # chance of at most 2 * exp(-7.6), 1 in 1000, in a series that does not change


@dataclass(frozen=True)
class Change:
    """The likeliest change of level: before value ``at``, with Pettitt's ``score``.

    ``shift`` is the median after it over the median before it.
    """

    at: int
    score: float
    shift: float

    @property
    def found(self) -> bool:
        """Whether this is a change and not chance, at an error rate of 1 in 1000."""
        return self.score > LIMIT


def _double_ranks(values: Sequence[float]) -> list[int]:
    """Twice the mid-rank of each value."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for i in order[start:end]:
            ranks[i] = start + end + 1
        start = end
    return ranks


def change(values: Sequence[float]) -> Change | None:
    """The likeliest change of level of positive values in time order; None below 8 of them.

    Pettitt's K is the greatest of ``|2 * (sum of the first t ranks) - t * (n + 1)|``; the chance
    of such a K without a change is about ``2 * exp(-score)`` with score ``6 K^2 / (n^3 + n^2)``. A
    steady drift scores as the change of level between its halves.
    """
    n = len(values)
    if n < LEAST_VALUES:
        return None
    greatest, at, total = 0, 1, 0
    for t, rank in enumerate(_double_ranks(values)[:-1], start=1):
        total += rank
        if abs(total - t * (n + 1)) > greatest:
            greatest, at = abs(total - t * (n + 1)), t
    score = 6 * greatest**2 / (n**3 + n**2)
    return Change(at, score, median(values[at:]) / median(values[:at]))


def memory(values: Sequence[float]) -> float | None:
    """Correlation, -1 to 1, of the sides of the median on which neighbours lie; None below 8."""
    if len(values) < LEAST_VALUES:
        return None
    centre = median(values)
    sides = [(value > centre) - (value < centre) for value in values]
    return sum(a * b for a, b in pairwise(sides)) / (len(values) - 1)
