"""Across samples: an exact percentile of kept values, whatever order they came in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from flashrt.calibration.kinds import Address, Observation, Samples
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy

CEILING = 20.0  # a scale this many times the median of all scales is an outlier


class Verdict(Enum):
    """What a point's samples amount to. The first three have a scale, the others have none."""

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
    ``dispersion`` is maximum / median, a pure number.
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

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {
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
    if not 0.0 < asked <= 100.0:
        raise Refusal(
            Reason.PERCENTILE, f"{asked} is not a percentile", do="above 0 and at most 100"
        )
    return asked if samples >= samples_for(asked) else 100.0


def reduce(samples: Samples, asked: float) -> Reduction:
    """Reduce every point over the samples that reached it. The frames' order has no effect."""
    count = len(samples.frames)
    effective = effective_percentile(asked, count)
    columns = [
        samples.amax[samples.seen[:, i], i].astype("float64") for i in range(len(samples.addresses))
    ]
    values = [
        percentile(c, effective_percentile(asked, len(c))) if len(c) else None for c in columns
    ]
    live = [v for v in values if v]
    median = percentile(live, 50.0) if live else 0.0
    limit = CEILING * median
    points = tuple(
        _point(address, column, value, (limit, asked, count), observation)
        for address, column, value, observation in zip(
            samples.addresses, columns, values, samples.observations, strict=True
        )
    )
    return Reduction(points, asked, effective, count, median, limit)


def _point(
    address: Address,
    column: numpy.ndarray,
    value: float | None,
    rule: tuple[float, float, int],
    observation: Observation | None,
) -> PointRecord:
    limit, asked, count = rule
    seen = len(column)
    if value is None:
        none = (None, None, None, None, None)
        return PointRecord(address, 0, *none, Verdict.UNCALIBRATED, observation)
    low, middle, high = float(column.min()), percentile(column, 50.0), float(column.max())
    dispersion = high / middle if middle > 0 else None
    if not value > 0:
        verdict = Verdict.DEAD
    elif not value <= limit:
        verdict = Verdict.OUTLIER
    elif seen < count and seen < samples_for(asked):
        verdict = Verdict.UNDERSAMPLED
    else:
        verdict = Verdict.CALIBRATED
    amax = None if verdict is Verdict.DEAD else value
    return PointRecord(address, seen, amax, low, middle, high, dispersion, verdict, observation)
