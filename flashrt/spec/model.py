"""What a structure's spec says, as frozen records."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any

from flashrt.spec.constraint import Constraint
from flashrt.spec.dims import Dim, Equation, Name, names
from flashrt.spec.domain import NORMAL, Domain
from flashrt.spec.repeat import element
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
    the schema's word for a slot and empty otherwise; ``role`` is ``value``, ``distribution``,
    ``state`` or ``content``. ``repeat`` is the dim that counts the tensors ``name.0``, ``name.1``,
    … that it stands for, and empty for one tensor; ``carries`` is the output of the previous call
    that a state input takes.
    """

    name: str
    dims: tuple[Dim, ...]
    dtype: str = "@binding"
    layout: str = ""
    role: str = "value"
    presence: Presence = Presence.REQUIRED
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    repeat: str = ""
    carries: str = ""
    domain: Domain = NORMAL

    def applies(self, variant: Mapping[str, str]) -> bool:
        """Whether the tensor exists under this variant."""
        return all(variant.get(axis) in allowed for axis, allowed in self.when.items())

    def used(self) -> frozenset[str]:
        """Every dim that its shape or its count has."""
        found = frozenset(name for dim in self.dims for name in names(dim))
        return found | {self.repeat} if self.repeat else found

    def tensor_names(self, sizes: Mapping[str, int]) -> list[str]:
        """The names of the tensors that it stands for. ``KeyError`` where the count has no size."""
        if not self.repeat:
            return [self.name]
        return [element(self.name, i) for i in range(sizes[self.repeat])]


class CaptureKind(Enum):
    """content becomes part of the plan; an observation only decides what the plan does."""

    CONTENT = "content"
    OBSERVATION = "observation"


@dataclass(frozen=True)
class Capture:
    """One tensor that is captured whole when a plan is built, never reduced."""

    name: str
    kind: CaptureKind
    dims: tuple[Dim, ...] = ()
    dtype: str = "@binding"
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Axis:
    """One axis along which hosts differ.

    A closed set of ``values``, a number with a ``default``, or the size of the dim ``dim``, which
    no weight says and nobody may guess.
    """

    name: str
    values: tuple[str, ...]
    default: str = ""
    dim: str = ""
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """What its values are, for people."""
        if self.dim:
            return f"the sizes of {self.dim}"
        return "the values it lists" if self.values else "the numbers"

    def accepts(self, value: str) -> bool:
        """Whether the value is one of the axis's own.

        A number must be finite and not negative, a size a positive integer.
        """
        if self.values:
            return value in self.values
        if self.dim:
            return re.fullmatch(r"[1-9][0-9]{0,11}", value) is not None
        try:
            number = float(value)
        except ValueError:
            return False
        return math.isfinite(number) and number >= 0

    def applies(self, variant: Mapping[str, str]) -> bool:
        """Whether the axis means anything under this variant."""
        return all(variant.get(axis) in allowed for axis, allowed in self.when.items())


class JudgedAt(Enum):
    """Where parity is judged: at a region's own outputs, or at the pipeline's."""

    REGION = "region"
    PIPELINE = "pipeline"


@dataclass(frozen=True)
class Gates:
    """The parity metric, the floors of its bands, and the speed-up a win must exceed (ratio)."""

    metric: str
    bands: Mapping[str, float]
    margin: float
    report: tuple[str, ...] = ()
    judged_at: JudgedAt = JudgedAt.REGION

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


class ScheduleKind(Enum):
    """token_loop ends with the text; fixed_steps is a number known beforehand."""

    TOKEN_LOOP = "token_loop"
    FIXED_STEPS = "fixed_steps"


@dataclass(frozen=True)
class Schedule:
    """The stage of a pipeline that is repeated, and how that ends."""

    kind: ScheduleKind
    stage: str


@dataclass(frozen=True)
class Window:
    """A value that a caller hands to a stage explicitly, so that two runs can be compared."""

    name: str
    stage: str
    presence: Presence


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
    constraints: tuple[Constraint, ...] = ()
    captures: Mapping[str, Capture] = field(default_factory=dict)
    composes: tuple[str, ...] = ()
    schedule: Schedule | None = None
    windows: Mapping[str, Window] = field(default_factory=dict)

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
                allowed = ", ".join(axis.values) or axis.kind
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
            axis = self.variants[missing[0]]
            values = ", ".join(axis.values) or axis.kind
            raise Refusal(
                Reason.BINDING,
                f"{self.id} needs a value for {missing[0]}",
                subject=missing[0],
                do=f"say one of {values}",
            )
        return full

    def said(self, variant: Mapping[str, str]) -> list[Equation]:
        """The dims that the variant itself gives a size."""
        return [
            Equation(Name(axis.dim), int(variant[name]), f"the variant {name}")
            for name, axis in self.variants.items()
            if axis.dim and name in variant and axis.accepts(variant[name])
        ]

    def _axis(self, name: str) -> Axis:
        if name not in self.variants:
            raise Refusal(
                Reason.BINDING,
                f"{self.id} has no variant axis {name!r}",
                subject=name,
                do=suggest(name, self.variants),
            )
        return self.variants[name]

    def tensors(self) -> list[tuple[str, TensorSpec]]:
        """Every tensor of its boundary, slots and points with its path in the spec's file."""
        groups = (
            ("$.boundary.inputs", self.inputs),
            ("$.boundary.outputs", self.outputs),
            ("$.weights", self.slots),
            ("$.calibration.points", self.points),
        )
        return [(f"{where}.{name}", t) for where, group in groups for name, t in group.items()]

    def weight_dims(self) -> frozenset[str]:
        """The dims that weights alone determine."""
        return frozenset(name for slot in self.slots.values() for name in slot.used())

    def state_inputs(self, variant: Mapping[str, str]) -> dict[str, TensorSpec]:
        """The inputs that a previous call's outputs come back in, under this variant."""
        return {n: t for n, t in self.inputs.items() if t.carries and t.applies(variant)}

    def optional_dims(self, variant: Mapping[str, str]) -> frozenset[str]:
        """Dims that no tensor has which a call under this variant must give."""
        groups = (self.inputs, self.slots)
        tensors = [t for group in groups for t in group.values()]
        must = {
            name
            for tensor in tensors
            if tensor.presence is Presence.REQUIRED and tensor.applies(variant)
            for name in tensor.used()
        }
        return frozenset(n for t in tensors for n in t.used()) - must


def suggest(name: str, known: Iterable[str]) -> str:
    """``did you mean …`` for the nearest known name, else the names there are."""
    choices = sorted(known)
    near = get_close_matches(name, choices, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}"
    if not choices:
        return "there is none"
    return "there is " + ", ".join(choices[:20]) + (", …" if len(choices) > 20 else "")
