"""Schemes that quantise activations with scales fixed before the first request."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from flashrt.calibration.reduce import PointRecord
from flashrt.calibration.statistic import AMAX, Statistic
from flashrt.scheme.decision import Bind, Decision, KeepHost, Site
from flashrt.scheme.structures import DENSE
from flashrt.scheme.weight_only import BY_PARTS, HEAD
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason

INT8_MAX = 127.0
FP8_E4M3_MAX = 448.0
_SMALLEST = 1.1754943508222875e-38  # the least normal float32: below it a scale has no reciprocal


@dataclass(frozen=True)
class Static:
    """One scale a tensor: amax / ``largest`` at every point of a dense seam of a layer.

    The output head keeps the host's precision.
    """

    largest: float

    def statistics(self, seam: Seam) -> Mapping[str, Statistic | None]:
        """amax of the whole tensor at every point of a dense seam."""
        return dict.fromkeys(seam.points, AMAX if seam.structure in DENSE else None)

    def decide(self, seam: Seam, reduced: Mapping[str, PointRecord], site: Site) -> Decision:
        """Bind where every point has an amax; a point without one is never given a scale."""
        if seam.structure not in DENSE:
            return KeepHost.of(seam, BY_PARTS)
        if site.head:
            return KeepHost.of(seam, HEAD)
        scales = {}
        for name in sorted(seam.points):
            point = reduced.get(name)
            if point is None or point.amax is None:
                reason = (point.verdict.reason if point else None) or Reason.UNCALIBRATED
                detail = f"{name}: {reason.sentence.rstrip('.')}"
                return KeepHost.of(seam, detail, reason)
            scale = point.amax / self.largest
            if not (math.isfinite(scale) and scale > _SMALLEST):
                reason = Reason.DEAD if math.isfinite(scale) else Reason.NONFINITE
                return KeepHost.of(seam, f"{name}: amax {point.amax:.4g} makes no scale", reason)
            scales[name] = scale
        return Bind(scales)


@dataclass(frozen=True)
class KeepOutliers:
    """``inner``, except that a seam with a point above the scale ceiling keeps the host."""

    inner: Static

    def statistics(self, seam: Seam) -> Mapping[str, Statistic | None]:
        """What ``inner`` needs."""
        return self.inner.statistics(seam)

    def decide(self, seam: Seam, reduced: Mapping[str, PointRecord], site: Site) -> Decision:
        """Keep the host where one scale would have to span far more than the others do."""
        decision = self.inner.decide(seam, reduced, site)
        if isinstance(decision, KeepHost):
            return decision
        for name, point in sorted(reduced.items()):
            if point.amax is not None and not point.amax <= site.limit:
                what = f"{name}: amax {point.amax:.4g} is above the ceiling {site.limit:.4g}"
                return KeepHost.of(seam, what, Reason.OUTLIER)
        return decision
