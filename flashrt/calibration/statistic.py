"""What a scheme may ask to have measured at a point, and what the collector measures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import Any

from flashrt_runtime.reason import Reason, Refusal


class Kind(Enum):
    """A statistic of one tensor: the largest absolute value, or the mean of the squares."""

    AMAX = "amax"
    SECOND_MOMENT = "second_moment"


class Granularity(Enum):
    """What one value of the statistic stands for. Channels are the last dim of an activation."""

    TENSOR = "tensor"
    CHANNEL = "channel"
    BLOCK_16 = "block_16"
    BLOCK_32 = "block_32"  # the MX formats' block: a scheme may name it, no collector has it

    def size(self, width: int) -> int:
        """How many of ``width`` channels one value stands for."""
        blocks = {Granularity.CHANNEL: 1, Granularity.BLOCK_16: 16, Granularity.BLOCK_32: 32}
        return blocks.get(self, width)


@dataclass(frozen=True)
class Statistic:
    """A kind and a granularity. Where a scheme gives ``None`` instead, nothing is measured."""

    kind: Kind
    granularity: Granularity

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {"kind": self.kind.value, "granularity": self.granularity.value}


def shown(value: object) -> str:
    """Anything that was given instead of what was asked for, short enough for a message."""
    try:
        text = repr(value)
    except ValueError:  # an int of thousands of digits
        text = f"a huge {type(value).__name__}"
    return text if len(text) <= 60 else text[:59] + "…"


def percent(asked: object) -> float:
    """``asked``, where it is a percentile. Raises :class:`Refusal` (PERCENTILE)."""
    number = math.nan
    if isinstance(asked, Real) and not isinstance(asked, bool):
        try:
            number = float(asked)
        except OverflowError:  # an int of hundreds of digits
            number = math.inf
    if 0.0 < number <= 100.0:
        return number
    raise Refusal(
        Reason.PERCENTILE,
        f"{shown(asked)} is not a percentile",
        do="a number above 0 and at most 100",
    )


AMAX = Statistic(Kind.AMAX, Granularity.TENSOR)
MEASURABLE = frozenset(
    Statistic(kind, granularity)
    for kind in Kind
    for granularity in (Granularity.TENSOR, Granularity.CHANNEL, Granularity.BLOCK_16)
)


def require_measurable(statistic: Statistic | None, subject: str) -> None:
    """Refuse (PERCENTILE) a statistic that no collector measures: a coarser one will not do."""
    if statistic is None:
        return
    whole = isinstance(statistic, Statistic) and isinstance(statistic.kind, Kind)
    if not whole or not isinstance(statistic.granularity, Granularity):
        raise Refusal(
            Reason.PERCENTILE,
            f"{shown(statistic)} was asked for and is no statistic",
            subject=subject,
            do="give a Statistic of a Kind and a Granularity, or None",
        )
    if statistic not in MEASURABLE:
        asked = f"{statistic.kind.value} per {statistic.granularity.value}"
        raise Refusal(
            Reason.PERCENTILE,
            f"{asked} was asked for and no collector measures it",
            subject=subject,
            do=f"add a collector for {asked}, or choose a scheme that asks for amax per tensor",
        )
