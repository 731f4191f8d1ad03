"""Facts that a cell is asked for by: where each stands in a receipt, and the value wanted there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flashrt.release.source import Body

# What people choose comes first, so that the first fact that differs is one that says something.
_ORDER = (
    "model_artifact", "pipeline", "precision", "shape", "device", "software", "form", "impls",
    "structures", "binding", "calibration",
)  # fmt: skip
_ABSENT = object()


@dataclass(frozen=True)
class Fact:
    """One fact: where it stands in a receipt, and the value expected there.

    ``stated`` says that the value was read from a record, where null is a value like any other;
    else null means that nobody knows it, and it matches nothing.
    """

    name: str  # "cell.shape.phase"
    expected: Any
    stated: bool = False

    def found_in(self, receipt: Body) -> Any:
        """The receipt's value; ``None`` where it has none."""
        found = self._look(receipt)
        return None if found is _ABSENT else found

    def _look(self, receipt: Body) -> Any:
        value: Any = receipt
        for part in self.name.split("."):
            if isinstance(value, Mapping):
                value = value.get(part, _ABSENT)
            elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
                value = value[int(part)]
            else:
                return _ABSENT
        return value

    def holds(self, receipt: Body) -> bool:
        """Whether the receipt says the same. A fact that is unknown on either side never does."""
        found = self._look(receipt)
        if found is _ABSENT:
            return False
        known = self.stated or (found is not None and self.expected is not None)
        return known and bool(found == self.expected)


@dataclass(frozen=True)
class Some(Fact):
    """A fact of which there must be one at least, whatever it is (``cell.precision.chains``)."""

    def holds(self, receipt: Body) -> bool:
        """Whether the receipt has any."""
        return bool(self.found_in(receipt))


def _leaves(value: Any, name: str) -> Iterator[Fact]:
    """Every fact below a value; a list of plain values is one fact."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from _leaves(value[key], f"{name}.{key}")
    elif isinstance(value, list) and any(isinstance(part, Mapping) for part in value):
        for index, part in enumerate(value):
            yield from _leaves(part, f"{name}.{index}")
    else:
        yield Fact(name, value, stated=True)


def facts_of(cell: Body, cell_digest: str) -> list[Fact]:
    """All facts of a cell, and its digest last: it differs where a receipt has a fact more."""
    names = [*(n for n in _ORDER if n in cell), *sorted(set(cell) - set(_ORDER))]
    facts = [fact for name in names for fact in _leaves(cell[name], f"cell.{name}")]
    return [*facts, Fact("cell_digest", cell_digest)]
