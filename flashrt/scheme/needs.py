"""What a scheme needs measured at the seams that can be served, and whether anything measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from flashrt.calibration.statistic import AMAX, Statistic, require_measurable
from flashrt.scheme.decision import Scheme
from flashrt.scheme.structures import is_fusion
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    from flashrt.calibration.reduce import PointRecord


class Measured(Protocol):
    """Reduced points: a calibration receipt's, or a door's own."""

    @property
    def digest(self) -> str:
        """Digest of the receipt; empty where there is none."""

    @property
    def limit(self) -> float:
        """The scale ceiling."""

    def of(self, seam: Seam) -> Mapping[str, PointRecord]:
        """The seam's points by name."""


def check_statistics(
    scheme: Scheme,
    seams: Sequence[Seam],
    calibration: Measured | None = None,
    *,
    serves: Callable[[Seam], bool] | None = None,
) -> list[str]:
    """Ids of the seams with a point that must be measured, those that nothing serves left out.

    ``serves`` says for which seams there is a form; without it, those whose structure an installed
    impl has. Raises :class:`Refusal` (PERCENTILE), naming the collector that it would take, for a
    statistic that no collector measures, or that ``calibration`` does not hold.
    """
    able = serves or _installed()
    needing = []
    for seam in seams:
        if is_fusion(seam.structure):
            continue
        wanted = {p: s for p, s in sorted(scheme.statistics(seam).items()) if s is not None}
        if not wanted or not able(seam):
            continue
        for point, statistic in wanted.items():
            subject = f"{seam.id}:{point}"
            require_measurable(statistic, subject)
            point_record = calibration.of(seam).get(point) if calibration else None
            if point_record is not None and point_record.amax is not None:
                require_held(statistic, point_record.statistics, subject)
        needing.append(seam.id)
    return needing


def finer(scheme: Scheme, seams: Sequence[Seam]) -> dict[tuple[str, str], Statistic]:
    """What to collect beside the amax of every tensor, by (seam id, point)."""
    needing = set(check_statistics(scheme, seams))
    return {
        (seam.id, point): statistic
        for seam in seams
        if seam.id in needing
        for point, statistic in scheme.statistics(seam).items()
        if statistic is not None and statistic != AMAX
    }


def told(statistic: Statistic) -> str:
    """``amax per channel``."""
    return f"{statistic.kind.value} per {statistic.granularity.value}"


def require_held(statistic: Statistic, held: frozenset[Statistic], subject: str) -> None:
    """Refuse (PERCENTILE) a calibration without this statistic: another does not stand for it."""
    if statistic not in held:
        has = ", ".join(sorted(map(told, held))) or "nothing"
        raise Refusal(
            Reason.PERCENTILE,
            f"{told(statistic)} is needed and the calibration holds {has}",
            subject=subject,
            do=f"calibrate again with a collector for {told(statistic)}",
        )


def _installed() -> Callable[[Seam], bool]:
    from flashrt_runtime.impl_loader import structures

    able = structures()
    return lambda seam: seam.structure in able
