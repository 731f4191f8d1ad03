"""Across samples: an exact percentile of kept values, whatever order they came in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from flashrt.calibration.grouped import GroupedRecord, reduce_grouped
from flashrt.calibration.kinds import Address, Observation, Samples
from flashrt.calibration.statistic import AMAX, Statistic, percent
from flashrt.calibration.streaming import between, ranks
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy

CEILING = 20.0  # a scale this many times the median of all scales is an outlier
_BLOCK = 16  # points reduced at a time: a copy of all kept vectors could be gigabytes


class Verdict(Enum):
    """What a point's samples amount to. The first three have a scale, the others have none.

    A point that is not finite is the one verdict that ends a run: :class:`Refusal` NONFINITE, which
    names the frame and the point. No receipt holds it.
    """

    CALIBRATED = "calibrated"
    OUTLIER = "outlier"
    UNDERSAMPLED = "undersampled"
    DEAD = "dead"
    UNCALIBRATED = "uncalibrated"

    @property
    def reason(self) -> Reason | None:
        """The reason a message about it has; ``None`` where all is well."""
        return None if self is Verdict.CALIBRATED else Reason[self.name]


@dataclass(frozen=True)
class PointRecord:
    """One point, reduced. ``amax`` is ``None`` where there is nothing to make a scale of.

    ``minimum``, ``median`` and ``maximum`` are over the samples that reached the point;
    ``dispersion`` is maximum / median, a pure number. ``effective`` is the point's own percentile
    where too few samples reached it for the reduction's. ``unmasked``: masked positions could not
    be told apart here and were measured. ``grouped`` is the finer statistic, if one was asked for.
    """

    address: Address
    seen: int
    amax: float | None
    minimum: float | None
    median: float | None
    maximum: float | None
    dispersion: float | None
    verdict: Verdict
    observation: Observation | None
    effective: float | None = None
    unmasked: bool = False
    grouped: GroupedRecord | None = None

    @property
    def statistics(self) -> frozenset[Statistic]:
        """What was measured here."""
        return frozenset({AMAX} | ({self.grouped.statistic} if self.grouped else set()))

    def record(self) -> dict[str, Any]:
        """JSON form. The last three fields are there only where they say something."""
        record: dict[str, Any] = {
            "seam": self.address.seam,
            "point": self.address.point,
            "module": self.address.module,
            "capture": self.address.capture,
            "seen": self.seen,
            "calls": self.observation.calls if self.observation else 0,
            "amax": self.amax,
            "minimum": self.minimum,
            "median": self.median,
            "maximum": self.maximum,
            "dispersion": self.dispersion,
            "verdict": self.verdict.value,
            "observed": self.observation.record() if self.observation else None,
        }
        if self.effective is not None:
            record["effective"] = self.effective
        if self.unmasked:
            record["unmasked"] = True
        if self.grouped is not None:
            record["grouped"] = self.grouped.record()
        return record


@dataclass(frozen=True)
class Reduction:
    """Every point reduced, with the percentile asked for and the one that the samples express.

    ``median`` is that of all points' amax, ``limit`` is 20 times it: the scale ceiling.
    """

    points: tuple[PointRecord, ...]
    asked: float
    effective: float
    samples: int
    median: float
    limit: float


def percentile(values: Sequence[float] | numpy.ndarray, q: float) -> float:
    """The ``q``-th percentile by linear interpolation, equal to ``numpy.percentile`` to the bit.

    Raises ``ValueError`` without values. NaN among them gives NaN.
    """
    import numpy as np

    if not len(values):
        raise ValueError("a percentile of nothing")
    return float(np.percentile(np.sort(np.asarray(values, dtype=np.float64)), q, method="linear"))


def samples_for(asked: float) -> int:
    """How many samples it takes for a percentile to differ from the maximum."""
    if asked >= 100.0:
        return 1
    # one sample at least must lie above it: n * (1 - asked/100) >= 1
    return math.ceil(round(100.0 / (100.0 - asked), 9))


def effective_percentile(asked: float, samples: int) -> float:
    """``asked``, or 100 (the maximum) when so few samples cannot tell it from the maximum.

    Interpolating between the two largest of 8 values and calling that "99.9" would claim a
    resolution that the samples do not have.
    """
    asked = percent(asked)
    return asked if samples >= samples_for(asked) else 100.0


@dataclass(frozen=True)
class _Column:
    """One point's samples: how many, their extremes and median, and the effective percentile."""

    seen: int
    low: float
    median: float
    high: float
    value: float


def reduce(samples: Samples, asked: float) -> Reduction:
    """Reduce every point over the samples that reached it. The frames' order has no effect.

    Takes a few megabytes over the kept vectors, however many there are. Raises :class:`Refusal`:
    PERCENTILE for a number that is not one, or for grouped statistics that were kept for a higher
    one; NONFINITE, naming frame and point, for vectors that a collector would not have kept.
    """
    count = len(samples.frames)
    effective = effective_percentile(asked, count)
    columns = list(_columns(samples, asked))
    live = [column.value for column in columns if column is not None and column.value]
    median = percentile(live, 50.0) if live else 0.0
    limit = CEILING * median
    grouped = {
        one.point: reduce_grouped(one, effective_percentile(asked, one.seen))
        for one in samples.grouped
    }
    points = []
    for i, (address, column) in enumerate(zip(samples.addresses, columns, strict=True)):
        verdict = _verdict(column, limit, asked, count)
        own = effective_percentile(asked, column.seen) if column else effective
        points.append(
            PointRecord(
                address=address,
                seen=column.seen if column else 0,
                amax=column.value if column and verdict is not Verdict.DEAD else None,
                minimum=column.low if column else None,
                median=column.median if column else None,
                maximum=column.high if column else None,
                dispersion=column.high / column.median if column and column.median > 0 else None,
                verdict=verdict,
                observation=samples.observations[i],
                effective=own if own != effective else None,
                unmasked=i in samples.unmasked,
                grouped=grouped.get(i),
            )
        )
    return Reduction(tuple(points), asked, effective, count, median, limit)


def _columns(samples: Samples, asked: float) -> Iterator[_Column | None]:
    """Every point's samples, sorted a block of points at a time; ``None`` where there are none."""
    import numpy as np

    total = len(samples.addresses)
    for start in range(0, total, _BLOCK):
        part = slice(start, min(start + _BLOCK, total))
        # a copy, contiguous by point, always: it is sorted in place
        block = np.array(samples.amax[:, part].T, dtype=np.float32, order="C")
        seen = samples.seen[:, part].T
        broken = np.argwhere(seen & ~np.isfinite(block))
        if broken.size:
            point, frame = broken[0]
            raise Refusal(
                Reason.NONFINITE,
                f"{samples.addresses[start + point].name} is NaN or infinite in this frame",
                subject=f"frame {samples.frames[frame]}",
            )
        block[~seen] = np.inf  # sorts behind what was seen
        block.sort(axis=1)
        for row, reached in zip(block, seen.sum(axis=1), strict=True):
            yield _column(row[:reached], asked) if reached else None


def _column(ordered: numpy.ndarray, asked: float) -> _Column:
    count = len(ordered)
    low, high = float(ordered[0]), float(ordered[-1])
    middle, value = (
        float(between(float(ordered[lower]), float(ordered[upper]), weight))
        for lower, upper, weight in (
            ranks(count, 50.0),
            ranks(count, effective_percentile(asked, count)),
        )
    )
    return _Column(count, low, middle, high, value)


def _verdict(column: _Column | None, limit: float, asked: float, count: int) -> Verdict:
    if column is None:
        return Verdict.UNCALIBRATED
    if not column.value > 0:
        return Verdict.DEAD
    if not column.value <= limit:
        return Verdict.OUTLIER
    if column.seen < count and column.seen < samples_for(asked):
        return Verdict.UNDERSAMPLED
    return Verdict.CALIBRATED
