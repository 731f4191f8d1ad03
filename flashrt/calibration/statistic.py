"""What a scheme may ask to have measured at a point, and the one thing the collector measures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from flashrt_runtime.reason import Reason, Refusal


class Kind(Enum):
    """A statistic of one tensor."""

    AMAX = "amax"
    SECOND_MOMENT = "second_moment"


class Granularity(Enum):
    """What one value of the statistic stands for."""

    TENSOR = "tensor"
    CHANNEL = "channel"
    BLOCK_16 = "block_16"


@dataclass(frozen=True)
class Statistic:
    """A kind and a granularity. Where a scheme gives ``None`` instead, nothing is measured."""

    kind: Kind
    granularity: Granularity

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {"kind": self.kind.value, "granularity": self.granularity.value}


AMAX = Statistic(Kind.AMAX, Granularity.TENSOR)
MEASURABLE = frozenset({AMAX})


def require_measurable(statistic: Statistic | None, subject: str) -> None:
    """Refuse (PERCENTILE) a statistic that no collector measures: a coarser one will not do."""
    if statistic is not None and statistic not in MEASURABLE:
        asked = f"{statistic.kind.value} per {statistic.granularity.value}"
        raise Refusal(
            Reason.PERCENTILE,
            f"{asked} was asked for and no collector measures it",
            subject=subject,
            do=f"add a collector for {asked}, or choose a scheme that asks for amax per tensor",
        )
