"""Across samples without the samples: exact percentiles and sums, a few values kept a point.

A percentile near 100 reads two order statistics near the top, so the largest ``k`` values are all
that has to be kept; which ones those are does not depend on the order they came in.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flashrt.calibration.statistic import percent
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy

_SPARE = 8  # rows at least that are added between two selections


def ranks(count: int, q: float) -> tuple[int, int, float]:
    """The two ranks (0 is the smallest of ``count`` values) around a percentile, and the weight of
    the upper one: the arithmetic of ``numpy.percentile(method="linear")``, step by step."""
    virtual = (count - 1) * (q / 100.0)
    if virtual >= count - 1:
        return count - 1, count - 1, 0.0
    lower = math.floor(virtual)
    return lower, lower + 1, virtual - lower


def between(low: Any, high: Any, weight: float) -> Any:
    """Interpolate float64 values as numpy does: from the nearer end."""
    step = high - low
    return low + step * weight if weight < 0.5 else high - step * (1 - weight)


def needed(samples: int, q: float) -> int:
    """How many of the largest values the percentile of 1 … ``samples`` values can read."""
    return max(count - ranks(count, q)[0] for count in range(1, samples + 1))


class TopK:
    """The largest values of every point over a stream of samples, and their exact percentile.

    Memory is two float32 a kept value: ``points`` × ``needed(samples, percentile)``, whatever was
    streamed. The result equals ``numpy.percentile`` over everything that was added, to the bit,
    and does not depend on the order.
    """

    def __init__(self, points: int, samples: int, percentile: float) -> None:
        import numpy as np

        if points < 0 or samples < 1:
            raise ValueError(f"{points} points over {samples} samples")
        percentile = percent(percentile)
        self.k, self.percentile = needed(samples, percentile), percentile
        room = min(samples, self.k + max(self.k, _SPARE))
        self._rows = np.full((points, room), -np.inf, dtype=np.float32)
        self._samples, self._added, self._used = samples, 0, 0
        self.counts = np.zeros(points, dtype=np.int64)  # samples that reached each point

    def add(self, values: numpy.ndarray, seen: numpy.ndarray | None = None) -> None:
        """One sample: float32 [points], of which those with ``seen`` (bool [points]) count.

        Raises :class:`Refusal` (NONFINITE) for a value that is not finite, and then nothing of the
        sample is kept; ``ValueError`` for more samples than were announced.
        """
        import numpy as np

        row = np.asarray(values, dtype=np.float32) + np.float32(0.0)  # there is one zero, not two
        counted = np.ones(row.shape, dtype=bool) if seen is None else np.asarray(seen, dtype=bool)
        if row.shape != self.counts.shape or counted.shape != row.shape:
            raise ValueError(f"{row.shape} values for {len(self.counts)} points")
        if self._added == self._samples:
            raise ValueError(f"more than the {self._samples} samples that were announced")
        broken = np.flatnonzero(counted & ~np.isfinite(row))
        if broken.size:
            raise Refusal(Reason.NONFINITE, f"value {broken[0]} of the sample is not finite")
        if self._used == self._rows.shape[1]:
            self._select()
        self._rows[:, self._used] = np.where(counted, row, -np.inf)
        self.counts += counted
        self._used += 1
        self._added += 1

    def _select(self) -> None:
        self._rows.partition(self._rows.shape[1] - self.k, axis=1)
        self._rows[:, : self.k] = self._rows[:, -self.k :].copy()
        self._rows[:, self.k :] = -float("inf")
        self._used = self.k

    def kept(self) -> numpy.ndarray:
        """float32 [k, points], the largest first; minus infinity where there were fewer values."""
        import numpy as np

        most = min(self.k, max(self._added, 1))
        return np.ascontiguousarray(np.sort(self._rows, axis=1)[:, ::-1][:, :most].T)

    def result(self) -> numpy.ndarray:
        """The percentile of every point, float64 [points]; NaN where no sample reached it."""
        import numpy as np

        top = self.kept()
        values = np.full(len(self.counts), np.nan)
        for count in np.unique(self.counts[self.counts > 0]):
            where = np.flatnonzero(self.counts == count)
            values[where] = of_largest(top[:, where], int(count), self.percentile)
        return values


def of_largest(top: numpy.ndarray, count: int, q: float) -> numpy.ndarray:
    """The ``q``-th percentile, float64 [points], of ``count`` values of which ``top`` [k, points]
    are the largest, largest first.

    Raises :class:`Refusal` (PERCENTILE) when the percentile reads a value that was not kept.
    """
    lower, upper, weight = ranks(count, q)
    if count - 1 - lower >= len(top):
        raise Refusal(
            Reason.PERCENTILE,
            f"percentile {q:g} of {count} samples reads the {count - lower} largest values and "
            f"{len(top)} were kept",
            do="collect again for this percentile",
        )
    low, high = (top[count - 1 - rank].astype("float64") for rank in (lower, upper))
    return between(low, high, weight)


class Moments:
    """Sums of squares over a stream of samples, two float64 a value: the sum and what rounding
    left of it. Fed in frame-id order, so the order that frames were given in has no effect."""

    def __init__(self, values: int) -> None:
        import numpy as np

        self.sums = np.zeros((2, values))

    def add(self, sums: numpy.ndarray) -> None:
        """One sample's sums, float64 [values]. Raises :class:`Refusal` (NONFINITE) on overflow."""
        import numpy as np

        high, low = self.sums
        with np.errstate(over="ignore"):
            total = high + sums
        if not np.isfinite(total).all():
            raise Refusal(Reason.NONFINITE, "a sum of squares is too large for float64")
        part = total - high
        left = (high - (total - part)) + (sums - part)  # exact: Knuth's two-sum
        self.sums = np.stack((total, low + left))
