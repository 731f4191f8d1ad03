"""Which values a boundary admits at an input, as a spec says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from flashrt.spec.expr import Expr, Number, names, single


class DomainKind(Enum):
    """normal: any value; the others are bounded, shared or whole numbers."""

    NORMAL = "normal"
    UNIFORM = "uniform"
    ANGLE = "angle"
    NONPOSITIVE = "nonpositive"
    INDEX = "index"
    RANGES = "ranges"


class Function(Enum):
    """Which function of the shared angles an input of kind angle is."""

    COS = "cos"
    SIN = "sin"


_ONE = Number(1)


@dataclass(frozen=True)
class Domain:
    """The values of one input.

    ``low`` and ``high`` bound kind uniform in the tensor's own unit; ``bound`` is the size that
    the whole numbers of kind index stay below, or the number of positions of kind ranges.
    """

    kind: DomainKind = DomainKind.NORMAL
    low: float = 0.0
    high: float = 1.0
    of: Function = Function.COS
    bound: Expr = _ONE

    def names(self) -> frozenset[str]:
        """The dims that it reads."""
        return names(self.bound)

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers, so that the tensor is of an integer dtype."""
        return self.kind in (DomainKind.INDEX, DomainKind.RANGES)


NORMAL = Domain()


def domain(entry: Mapping[str, Any] | None) -> Domain:
    """The domain that a spec's entry says; normal where it says nothing.

    The entry satisfies the schema. Raises :class:`Refusal` (SCHEMA) for a bound that is no dim.
    """
    if entry is None:
        return NORMAL
    return Domain(
        kind=DomainKind(entry["kind"]),
        low=float(entry.get("low", 0.0)),
        high=float(entry.get("high", 1.0)),
        of=Function(entry.get("of", "cos")),
        bound=single(entry.get("below", entry.get("within", 1))),
    )
