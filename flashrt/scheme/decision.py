"""What a scheme decides for one seam: bind with these scales, or keep the host, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from flashrt.calibration.precision import Scale
from flashrt.calibration.reduce import PointRecord
from flashrt.calibration.statistic import Statistic
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason


@dataclass(frozen=True)
class Bind:
    """Bind with one scale a static point (real value = scale x quantised value).

    A tuple is one scale a channel or a block, in their order. ``overridden`` names the points whose
    scale a person gave.
    """

    scales: Mapping[str, Scale] = field(default_factory=dict)
    overridden: tuple[str, ...] = ()


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
    """One seam's outcome. ``impl`` names structure, backend and form where it binds.

    ``statistics`` is what the scheme asked of each point; empty where it was not asked.
    """

    seam: Seam
    decision: Decision
    impl: Mapping[str, str] | None
    statistics: Mapping[str, Statistic | None] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """JSON form. ``overridden`` is there only where a scale was overridden."""
        decision = self.decision
        record: dict[str, Any] = {
            "seam": self.seam.record(),
            "outcome": "keep_host" if isinstance(decision, KeepHost) else "bind",
            "impl": dict(self.impl) if self.impl else None,
            "scales": dict(decision.scales) if isinstance(decision, Bind) else {},
            "reason": decision.because.record() if isinstance(decision, KeepHost) else None,
        }
        if isinstance(decision, Bind) and decision.overridden:
            record["overridden"] = list(decision.overridden)
        return record
