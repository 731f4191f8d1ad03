"""The statistics that decide: exact, distribution-free, with the error rate fixed in advance.

The interval of a median comes from order statistics: the k-th smallest of n independent values
lies above the true median with probability P(Binomial(n, 1/2) < k), whatever their distribution.
That probability is a ratio of integers and is compared as one, so no rounding, no library version
and no simulation stands between the samples and the decision. Everything is monotone in the ratio,
so nothing needs a logarithm: the interval of ratios is the interval of log-ratios, exponentiated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from math import comb, sqrt
from typing import Protocol


@dataclass(frozen=True)
class Interval:
    """A median with its confidence bounds; a ratio, so without unit."""

    low: float
    median: float
    high: float

    def record(self) -> dict[str, float]:
        """JSON form."""
        return {"median": self.median, "low": self.low, "high": self.high}


class Decision(Enum):
    """What the samples say about the question that was asked of them."""

    WIN = "win"
    LOSS = "loss"
    OPEN = "open"


def alpha_of_attempt(alpha: float, attempt: int) -> Fraction:
    """The one-sided error rate of attempt k (1 for the first) at a cell: ``alpha / 2**k``."""
    return Fraction(alpha) / 2**attempt


def alpha_per_look(alpha: float, attempt: int, looks: int) -> Fraction:
    """The one-sided error rate of one look under the first protocol.

    Attempt k (1 for the first) may spend ``alpha / 2**k``, so that all attempts ever made at a
    cell spend less than ``alpha`` together; an attempt's share is split evenly over its looks
    (Bonferroni: valid however the looks depend on each other).
    """
    return alpha_of_attempt(alpha, attempt) / looks


@lru_cache(maxsize=4096)
def lower_rank(n: int, alpha: Fraction) -> int:
    """The largest k with P(Binomial(n, 1/2) < k) <= alpha; 0 when n is too small for any."""
    limit = alpha * 2**n
    below, k = 0, 0
    while k < n and below + comb(n, k) <= limit:
        below += comb(n, k)
        k += 1
    return k


def median(values: Sequence[float]) -> float:
    """Median of positive ratios; the middle two are averaged geometrically."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return sqrt(ordered[middle - 1] * ordered[middle])


def interval(values: Sequence[float], alpha: Fraction) -> Interval | None:
    """Median of ``values`` with bounds that each fail with probability at most ``alpha``.

    None when so few values cannot bound a median at this error rate.
    """
    return between(values, lower_rank(len(values), alpha))


def between(values: Sequence[float], rank: int) -> Interval | None:
    """The median with the ``rank``-th value from below and from above; None at rank 0."""
    if rank == 0:
        return None
    ordered = sorted(values)
    return Interval(ordered[rank - 1], median(ordered), ordered[len(ordered) - rank])


class Question(Protocol):
    """What is asked at each look."""

    def ask(self, seen: Interval) -> Decision:
        """WIN or LOSS ends the sequence; OPEN asks for more samples."""

    def holds(self, values: Sequence[float]) -> bool:
        """Whether a part of the series, taken alone, does not speak against a win."""


@dataclass(frozen=True)
class PastMargin:
    """Is arm b faster than arm a by the factor ``margin``?"""

    margin: float

    def ask(self, seen: Interval) -> Decision:
        """WIN when the lower bound is past the margin, LOSS when the upper bound is below it."""
        if seen.low > self.margin:
            return Decision.WIN
        if seen.high < self.margin:
            return Decision.LOSS
        return Decision.OPEN

    def holds(self, values: Sequence[float]) -> bool:
        """Whether the part's own median is past the margin."""
        return median(values) > self.margin


@dataclass(frozen=True)
class Narrow:
    """Does an arm raced against itself look like itself, within less than ``width``?

    An undecided A/A race proves nothing, because a decided one is what a precise clock gives: the
    control asks for an interval that contains 1 and is narrow (high / low below ``width``).
    """

    width: float

    def ask(self, seen: Interval) -> Decision:
        """OPEN until narrow; then WIN if 1 is inside, LOSS if the machine favours a seat."""
        if not (seen.high < seen.low * self.width):
            return Decision.OPEN
        return Decision.WIN if seen.low <= 1.0 <= seen.high else Decision.LOSS

    def holds(self, values: Sequence[float]) -> bool:
        """Always: a part of a control is too short to be narrow."""
        return True
