"""What a scheme decides for one seam: bind with these scales, or keep the host, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from flashrt.calibration.reduce import PointRecord
from flashrt.calibration.statistic import Statistic
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason


@dataclass(frozen=True)
class Bind:
    """Bind with one scale a static point (real value = scale x quantised value)."""

    scales: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class KeepHost:
    """Leave the host as it is here: a decision like any other, recorded with its reason."""

    because: Because

    @classmethod
    def of(cls, seam: Seam, detail: str, reason: Reason = Reason.KEPT_HOST) -> KeepHost:
        """Keep the host at a seam."""
        return cls(Because(reason, detail, seam.id))


Decision = Bind | KeepHost


@dataclass(frozen=True)
class Site:
    """Facts about where a seam sits that are not the seam's own.

    ``rows`` is the number of rows in one call; ``head`` whether it is the projection after the
    last region (a language model's output head); ``limit`` the scale ceiling, or infinity.
    """

    rows: int
    head: bool = False
    limit: float = float("inf")


class Scheme(Protocol):
    """Two methods and nothing else. Bytes, packing and kernels are the impl's."""

    def statistics(self, seam: Seam) -> Mapping[str, Statistic | None]:
        """What every point needs measured; ``None``: quantised at run time, or not at all."""

    def decide(self, seam: Seam, reduced: Mapping[str, PointRecord], site: Site) -> Decision:
        """The outcome at a seam, from its reduced points (those that :meth:`statistics` names)."""


@dataclass(frozen=True)
class SeamPlan:
    """One seam's outcome. ``impl`` names structure, backend and form where it binds."""

    seam: Seam
    decision: Decision
    impl: Mapping[str, str] | None

    def record(self) -> dict[str, Any]:
        """JSON form."""
        binds = isinstance(self.decision, Bind)
        return {
            "seam": self.seam.record(),
            "outcome": "bind" if binds else "keep_host",
            "impl": dict(self.impl) if self.impl else None,
            "scales": dict(self.decision.scales) if isinstance(self.decision, Bind) else {},
            "reason": (
                self.decision.because.record() if isinstance(self.decision, KeepHost) else None
            ),
        }
