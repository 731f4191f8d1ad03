"""Diagnostics of a series: drift, changes of level, outliers, memory, blocks lost to others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flashrt.race.change import Change, change, memory
from flashrt.race.decision import median
from flashrt.race.protocol import Protocol
from flashrt.race.series import Block, Series

LEAST_BLOCKS = 8
OUTLIER_MADS = 6.0


@dataclass(frozen=True)
class Steadiness:
    """What kept blocks say about time: of the host alone, and of the ratio.

    ``drifted``: the host's time changed level or drifted (ABBA cancels it; it is said, not
    averaged away). ``shifted``: the ratio itself did, by ``ratio_shift``: the arms changed against
    each other, and one median describes two states. ``host_change`` and ``ratio_change`` are the
    scores (above 7.6 it is a change). ``memory`` is the correlation of neighbouring blocks' sides
    of the median. Scores are None below 8 blocks.
    """

    drifted: bool
    host_change: float | None
    shifted: bool
    ratio_change: float | None
    ratio_shift: float | None
    memory: float | None


@dataclass(frozen=True)
class Diagnosis:
    """``drift``: median host time of the last quarter over the first (None below 8 blocks).

    ``outliers``: share of kept blocks whose ratio is more than 6 median absolute deviations from
    the median. ``lost``: blocks not kept. ``foreign_max``: highest foreign share in a kept block.
    ``steadiness`` is None under the first protocol, whose receipts do not have it.
    """

    drift: float | None
    outliers: float
    lost: int
    foreign_max: float
    steadiness: Steadiness | None = None

    def record(self) -> dict[str, Any]:
        """JSON form."""
        body = asdict(self)
        steadiness = body.pop("steadiness")
        return body | (steadiness or {})


def _host(blocks: Sequence[Block]) -> float:
    return median([float(a) for block in blocks for a, _ in block.pairs])


def _steadiness(kept: Sequence[Block]) -> Steadiness:
    ratios = [block.ratio for block in kept]
    host: Change | None = change([_host([block]) for block in kept])
    ratio = change(ratios)
    return Steadiness(
        drifted=host is not None and host.found,
        host_change=host.score if host else None,
        shifted=ratio is not None and ratio.found,
        ratio_change=ratio.score if ratio else None,
        ratio_shift=ratio.shift if ratio else None,
        memory=memory(ratios),
    )


def diagnose(series: Series, protocol: Protocol = Protocol.PATHS) -> Diagnosis:
    """The series' diagnostics. Never raises on a series without a kept block."""
    kept = series.kept
    lost = len(series.blocks) - len(kept)
    steadiness = None if protocol is Protocol.EVEN else _steadiness(kept)
    if not kept:
        return Diagnosis(None, 0.0, lost, 0.0, steadiness)
    drift = None
    if len(kept) >= LEAST_BLOCKS:
        quarter = len(kept) // 4
        drift = _host(kept[-quarter:]) / _host(kept[:quarter])
    values = [block.ratio for block in kept]
    centre = median(values)
    distances = sorted(abs(value - centre) for value in values)
    spread = distances[len(distances) // 2]
    far = sum(1 for d in distances if d > OUTLIER_MADS * spread)
    foreign = max(block.foreign for block in kept)
    return Diagnosis(drift, far / len(kept), lost, foreign, steadiness)
