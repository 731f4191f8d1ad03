"""Diagnostics of a series that decide nothing: drift, outliers, blocks lost to others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flashrt.race.decision import median
from flashrt.race.series import Block, Series

LEAST_BLOCKS = 8
OUTLIER_MADS = 6.0


@dataclass(frozen=True)
class Diagnosis:
    """``drift``: median host time of the last quarter over the first (None below 8 blocks).

    ``outliers``: share of kept blocks whose ratio is more than 6 median absolute deviations from
    the median. ``lost``: blocks not kept. ``foreign_max``: highest foreign share in a kept block.
    """

    drift: float | None
    outliers: float
    lost: int
    foreign_max: float

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def _host(blocks: Sequence[Block]) -> float:
    return median([float(a) for block in blocks for a, _ in block.pairs])


def diagnose(series: Series) -> Diagnosis:
    """The series' diagnostics. Never raises on a series without a kept block."""
    kept = series.kept
    lost = len(series.blocks) - len(kept)
    if not kept:
        return Diagnosis(None, 0.0, lost, 0.0)
    drift = None
    if len(kept) >= LEAST_BLOCKS:
        quarter = len(kept) // 4
        drift = _host(kept[-quarter:]) / _host(kept[:quarter])
    values = [block.ratio for block in kept]
    centre = median(values)
    distances = sorted(abs(value - centre) for value in values)
    spread = distances[len(distances) // 2]
    far = sum(1 for d in distances if d > OUTLIER_MADS * spread)
    return Diagnosis(drift, far / len(kept), lost, max(block.foreign for block in kept))
