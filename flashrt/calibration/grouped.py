"""A finer statistic of one point: streamed over frames, kept small, and reduced to its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flashrt.calibration.kinds import Grouped
from flashrt.calibration.statistic import Kind, Statistic
from flashrt.calibration.streaming import Moments, TopK, of_largest
from flashrt.calibration.vectors import Folded
from flashrt_runtime.reason import Reason, Refusal


class Stream:
    """One point's vectors, frame after frame, into a :class:`Grouped`."""

    def __init__(self, point: int, statistic: Statistic, samples: int, percentile: float) -> None:
        self._point, self._statistic = point, statistic
        self._samples, self._percentile = samples, percentile
        self._top: TopK | None = None
        self._moments: Moments | None = None
        self._seen = self._rows = self._width = 0

    def add(self, frame: Folded, subject: str) -> None:
        """One frame's values.

        Raises :class:`Refusal`: SHAPE for another width than before, NONFINITE.
        """
        vector = frame.values
        if self._top is None and self._moments is None:
            if self._statistic.kind is Kind.AMAX:
                self._top = TopK(len(vector), self._samples, self._percentile)
            else:
                self._moments = Moments(len(vector))
            self._width = frame.width
        if frame.width != self._width:  # one value for the whole tensor has a width as well
            what = f"{self._width} channels in one frame and {frame.width} in another"
            raise Refusal(Reason.SHAPE, what, subject=subject)
        if self._top is not None:
            self._top.add(vector)
        elif self._moments is not None:
            self._moments.add(vector)
        self._seen += 1
        self._rows += frame.rows

    def finish(self) -> Grouped | None:
        """What was kept; ``None`` where no frame reached the point."""
        if self._top is not None:
            kept = self._top.kept()
        elif self._moments is not None:
            kept = self._moments.sums
        else:
            return None
        return Grouped(self._point, self._statistic, self._width, self._seen, self._rows, kept)


@dataclass(frozen=True)
class GroupedRecord:
    """The statistic reduced: ``values`` has one a group, in channel order.

    ``None`` stands where a group saw only zeros: no scale is made of that. amax has the unit of
    the activation, second_moment (the mean of the squares) its square.
    """

    statistic: Statistic
    width: int
    rows: int
    values: tuple[float | None, ...]

    @property
    def dead(self) -> int:
        """Groups that saw only zeros."""
        return sum(value is None for value in self.values)

    def record(self) -> dict[str, Any]:
        """JSON form, without the values: they follow from the table."""
        from statistics import median

        live = [value for value in self.values if value is not None]
        return {
            **self.statistic.record(),
            "width": self.width,
            "rows": self.rows,
            "groups": len(self.values),
            "dead": self.dead,
            "minimum": min(live) if live else None,
            "median": median(live) if live else None,
            "maximum": max(live) if live else None,
        }


def reduce_grouped(grouped: Grouped, percentile: float) -> GroupedRecord:
    """Reduce over frames: an amax by the effective ``percentile``, a second moment by its mean
    over all positions. Raises :class:`Refusal` (PERCENTILE) where too few values were kept."""
    if grouped.statistic.kind is Kind.AMAX:
        values = of_largest(grouped.kept, grouped.seen, percentile)
    else:
        channels = grouped.statistic.granularity.size(grouped.width)
        values = grouped.kept.sum(axis=0) / (grouped.rows * channels)
    live = tuple(float(value) if value > 0 else None for value in values)
    return GroupedRecord(grouped.statistic, grouped.width, grouped.rows, live)
