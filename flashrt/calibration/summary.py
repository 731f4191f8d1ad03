"""What a calibration amounts to, in one line, and what deserves a warning."""

from __future__ import annotations

from collections.abc import Sequence

from flashrt.calibration.reduce import CEILING, PointRecord, Reduction, Verdict, samples_for
from flashrt_runtime.reason import Because, Reason


def summary(reduction: Reduction, corpus: str) -> str:
    """One line: points, samples, percentile, range of amax, dispersion, outliers."""
    scaled = [p for p in reduction.points if p.amax is not None]
    effective = "the maximum" if reduction.effective == 100.0 else f"{reduction.effective:g}"
    told = f"{reduction.asked:g}"
    if reduction.effective != reduction.asked:
        told += f", in effect {effective}"
    text = (
        f"{len(scaled)} of {len(reduction.points)} points calibrated over {reduction.samples} "
        f"samples of {corpus} (percentile {told})"
    )
    if scaled:
        low = min(p.amax for p in scaled if p.amax is not None)
        high = max(p.amax for p in scaled if p.amax is not None)
        text += f": amax {low:.3g} to {high:.3g}, median {reduction.median:.3g}"
        spread = [p for p in scaled if p.dispersion is not None]
        if spread:
            worst = max(spread, key=lambda p: (p.dispersion or 0.0, p.address.name))
            text += f"; widest dispersion {worst.dispersion:.2f} at {worst.address.name}"
    outliers = sum(p.verdict is Verdict.OUTLIER for p in reduction.points)
    return text + f"; {outliers} above {CEILING:g} x median"


def warnings(reduction: Reduction) -> tuple[Because, ...]:
    """The percentile that the samples cannot express, then every point that is not plain."""
    found = []
    if reduction.effective != reduction.asked:
        found.append(
            Because(
                Reason.UNDERSAMPLED,
                f"{reduction.samples} samples cannot express percentile {reduction.asked:g}, which "
                f"takes {samples_for(reduction.asked)}; the maximum was used",
                "percentile",
            )
        )
    for point in reduction.points:
        found += _beside_the_verdict(point)
        reason = point.verdict.reason
        if reason is None:
            continue
        detail = reason.sentence.rstrip(".")
        if point.verdict is Verdict.OUTLIER:
            ratio = (point.amax or 0.0) / reduction.median
            detail = f"amax {point.amax:.4g} is {ratio:.0f} x the median {reduction.median:.4g}"
        elif point.verdict is Verdict.UNDERSAMPLED:
            detail = f"only {point.seen} of {reduction.samples} samples reached it"
            if point.effective is not None:
                detail += "; the maximum was used"
        elif point.verdict is Verdict.DEAD and point.maximum:
            detail = f"it is zero at percentile {reduction.asked:g}, so it has no scale"
        found.append(Because(reason, detail, point.address.name))
    return tuple(found)


def _beside_the_verdict(point: PointRecord) -> list[Because]:
    """What is to be known of a point whatever its verdict is."""
    found = []
    if point.unmasked:
        detail = "its rows are not the frame's positions, so masked ones were measured too"
        found.append(Because(Reason.SHAPE, detail, point.address.name))
    if point.grouped is not None and point.grouped.dead and point.verdict is not Verdict.DEAD:
        unit = point.grouped.statistic.granularity.value
        detail = f"{point.grouped.dead} of {len(point.grouped.values)} values a {unit} are zero"
        found.append(Because(Reason.DEAD, f"{detail} and have no scale", point.address.name))
    return found


def by_reason(found: Sequence[Because], most: int = 5) -> list[Because]:
    """Warnings for a person: at most ``most`` of one reason, then one that counts the rest."""
    shown: list[Because] = []
    for reason in dict.fromkeys(because.reason for because in found):
        alike = [because for because in found if because.reason is reason]
        shown += alike[:most]
        if len(alike) > most:
            more = f"and {len(alike) - most} more points; the receipt lists them"
            shown.append(Because(reason, more))
    return shown
