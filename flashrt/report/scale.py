"""A linear scale onto pixels, with round ticks; what is off it lies on its edge."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class LinearScale:
    """Values from ``low`` to ``high`` onto pixels from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Iterable[float], start: float, end: float) -> LinearScale:
        """A scale with a little room around the finite values; 0 to 1 without any."""
        found = [v for v in values if math.isfinite(v)] or [0.0, 1.0]
        low, high = min(found), max(found)
        room = (high - low) * 0.06 or abs(high) * 0.01 or 0.5
        return cls(low - room, high + room, start, end)

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        inside = min(max(value, self.low), self.high)
        share = (inside - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 2)

    def holds(self, value: float) -> bool:
        """Whether the value is on the scale."""
        return self.low <= value <= self.high

    def ticks(self, apart: float = 40.0) -> list[float]:
        """Multiples of one round step, at least ``apart`` pixels from each other."""
        step = self._step(apart)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        found = [float(f"{i * step:.12g}") for i in range(first, last + 1)]
        return [value for value in found if self.holds(value)]

    def said(self, value: float, apart: float = 40.0) -> str:
        """A tick in digits: as many as the step has, on every tick the same."""
        digits = max(0, -math.floor(math.log10(self._step(apart)) + 1e-9))
        return f"{value:.{digits}f}"

    def _step(self, apart: float) -> float:
        least = (self.high - self.low) * apart / abs(self.end - self.start)
        power = 10.0 ** math.floor(math.log10(least))
        return next(s * power for s in _STEPS if s * power >= least * (1 - 1e-9))


def bulk(values: Iterable[float], reach: float = 6.0) -> list[float]:
    """The values without the few that lie far out, so that those do not flatten the picture.

    Far is more than ``reach`` interquartile ranges from the quartiles.
    """
    ordered = sorted(v for v in values if math.isfinite(v))
    if len(ordered) < 4:
        return ordered
    low, high = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
    room = reach * (high - low)
    return [v for v in ordered if low - room <= v <= high + room]
