"""What a structure's spec says, as frozen records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any

from flashrt.spec.dims import Expr, names
from flashrt_runtime.reason import Reason, Refusal


class Kind(Enum):
    """A region of a model, or a whole pipeline."""

    REGION = "region"
    PIPELINE = "pipeline"


class Presence(Enum):
    """Whether a tensor may be left out where its ``when`` holds."""

    REQUIRED = "required"
    OPTIONAL = "optional"


@dataclass(frozen=True)
class TensorSpec:
    """A boundary tensor, a weight slot or a calibration point.

    ``dims`` is the shape in symbolic dims. ``dtype`` is a torch name or ``@binding``; ``layout`` is
    ``out_in`` or ``vector`` for a slot and empty otherwise; ``role`` is ``value``, ``distribution``
    or ``state`` for an output.
    """

    name: str
    dims: tuple[Expr, ...]
    dtype: str = "@binding"
    layout: str = ""
    role: str = "value"
    presence: Presence = Presence.REQUIRED
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def applies(self, variant: Mapping[str, str]) -> bool:
        """Whether the tensor exists under this variant."""
        return all(variant.get(axis) in allowed for axis, allowed in self.when.items())


@dataclass(frozen=True)
class Axis:
    """One axis along which hosts differ: a closed set of values, or a number with a default."""

    name: str
    values: tuple[str, ...]
    default: str = ""
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def accepts(self, value: str) -> bool:
        """Whether the value is one of the axis's own; a number must be finite and not negative."""
        if self.values:
            return value in self.values
        try:
            number = float(value)
        except ValueError:
            return False
        return math.isfinite(number) and number >= 0

    def applies(self, variant: Mapping[str, str]) -> bool:
        """Whether the axis means anything under this variant."""
        return all(variant.get(axis) in allowed for axis, allowed in self.when.items())


@dataclass(frozen=True)
class Gates:
    """The parity metric, the floors of its bands, and the speed-up a win must exceed (ratio)."""

    metric: str
    bands: Mapping[str, float]
    margin: float
    report: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "metric": self.metric,
            "bands": dict(self.bands),
            "margin": self.margin,
            "report": list(self.report),
        }


@dataclass(frozen=True)
class Stage:
    """One stage of a pipeline and how often it runs."""

    name: str
    presence: Presence
    cadence: str


@dataclass(frozen=True)
class StructureSpec:
    """One version of one structure.

    ``digest`` is ``sha256:…`` of the file's bytes. ``reference`` is the file that holds the
    plain-torch reference, or None where the unmodified host is the reference (pipelines).
    """

    name: str
    version: int
    digest: str
    kind: Kind
    summary: str
    gates: Gates
    path: Path
    reference: Path | None
    dims: Mapping[str, str] = field(default_factory=dict)
    rows: str = ""
    inputs: Mapping[str, TensorSpec] = field(default_factory=dict)
    outputs: Mapping[str, TensorSpec] = field(default_factory=dict)
    slots: Mapping[str, TensorSpec] = field(default_factory=dict)
    variants: Mapping[str, Axis] = field(default_factory=dict)
    points: Mapping[str, TensorSpec] = field(default_factory=dict)
    stages: Mapping[str, Stage] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """``name@version``."""
        return f"{self.name}@{self.version}"

    def complete(self, variant: Mapping[str, str]) -> dict[str, str]:
        """The variant with the numeric axes' defaults filled in.

        Raises :class:`Refusal` (BINDING) for an unknown axis, a missing one, or a value that the
        axis does not have.
        """
        full = dict(variant)
        for name, axis in self.variants.items():
            if axis.default and axis.applies(full):
                full.setdefault(name, axis.default)
        for name, value in full.items():
            axis = self._axis(name)
            if not axis.accepts(value):
                allowed = ", ".join(axis.values) or "numbers"
                raise Refusal(
                    Reason.BINDING,
                    f"{self.id} has no {name} {value!r}",
                    subject=name,
                    do=f"{name} is one of {allowed}",
                )
            if not axis.applies(full):
                raise Refusal(
                    Reason.BINDING,
                    f"{self.id} has no {name} under this variant",
                    subject=name,
                    do=f"remove {name}",
                )
        missing = [n for n, a in self.variants.items() if n not in full and a.applies(full)]
        if missing:
            values = ", ".join(self.variants[missing[0]].values)
            raise Refusal(
                Reason.BINDING,
                f"{self.id} needs a value for {missing[0]}",
                subject=missing[0],
                do=f"say one of {values}",
            )
        return full

    def _axis(self, name: str) -> Axis:
        if name not in self.variants:
            raise Refusal(
                Reason.BINDING,
                f"{self.id} has no variant axis {name!r}",
                subject=name,
                do=suggest(name, self.variants),
            )
        return self.variants[name]

    def weight_dims(self) -> frozenset[str]:
        """The dims that weights alone determine."""
        return frozenset(n for slot in self.slots.values() for d in slot.dims for n in names(d))


def suggest(name: str, known: Iterable[str]) -> str:
    """``did you mean …`` for the nearest known name, else the names there are."""
    choices = sorted(known)
    near = get_close_matches(name, choices, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}"
    if not choices:
        return "there is none"
    return "there is " + ", ".join(choices[:12]) + (", …" if len(choices) > 12 else "")
