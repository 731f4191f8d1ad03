"""Draws cases of a structure: sizes, variant and tensors that its boundary admits."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from flashrt.spec.dims import Alternatives, Expr, evaluate, options
from flashrt.spec.draw_sizes import draw_sizes
from flashrt.spec.draw_values import values
from flashrt.spec.model import Presence, StructureSpec, TensorSpec
from flashrt.spec.repeat import base
from flashrt_runtime.contract import BindRequest, Point, Seam
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

# Calls of one case: the first as drawn, the others with the state that the one before returned.
CALLS = 3


class Slots(Enum):
    """Which optional tensors a case has."""

    DRAWN = "drawn"
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True)
class Case:
    """One drawn case: the sizes of the dims that its tensors have, the variant, and the tensors.

    Tensors are by the spec's names, repeated ones as ``name.0``, …. ``later`` are the inputs of the
    calls after the first, less the state that they carry; empty where no state is carried.
    """

    spec: StructureSpec = field(repr=False)
    seed: int
    dims: Mapping[str, int]
    variant: Mapping[str, str]
    inputs: Mapping[str, torch.Tensor] = field(repr=False)
    weights: Mapping[str, torch.Tensor] = field(repr=False)
    later: tuple[Mapping[str, torch.Tensor], ...] = field(default=(), repr=False)

    def request(
        self, form: str, scales: Mapping[str, float], roles: Sequence[str] = ("self",)
    ) -> BindRequest:
        """The case as an impl sees it: a seam in a host whose modules are named by role."""
        solved = {n: s for n, s in self.dims.items() if n in self.spec.weight_dims()}
        points = (t for t in self.spec.points.values() if t.applies(self.variant))
        seam = Seam(
            id=f"{self.spec.name}:case.{self.seed}",
            structure=self.spec.id,
            members={role: f"case.{role}" for role in roles},
            variant=self.variant,
            dims=solved,
            weights={slot: f"case.{slot}" for slot in self.weights},
            points={point.name: Point("case", "input") for point in points},
        )
        return BindRequest(seam=seam, weights=self.weights, scales=scales, form=form)


def draw(
    spec: StructureSpec,
    count: int,
    seed: int = 0,
    *,
    variants: Mapping[str, Sequence[str]] | None = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
    slots: Slots = Slots.DRAWN,
    dtype: torch.dtype | None = None,
) -> Iterator[Case]:
    """``count`` cases, the same for the same seed.

    ``variants`` narrows an axis to values (as an impl's manifest does); ``sizes`` narrows a dim.
    Numeric axes take their default unless narrowed, an axis that is a dim's size the drawn size.
    Tensors are of their fixed dtype, else ``dtype``, float32 by default; their values are in their
    domain. All state is given or none, as ``slots`` says. Raises :class:`Refusal`: SHAPE when no
    drawn size satisfies the spec's dims and constraints, BINDING for a variant that it lacks.
    """
    for i in range(count):
        yield _case(
            spec,
            seed * 1_000_003 + i,
            variants=variants or {},
            sizes=sizes or {},
            slots=slots,
            dtype=dtype,
        )


def _variant(
    spec: StructureSpec, rng: random.Random, allowed: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """A value for each axis that lists its values, and for each number that is narrowed."""
    drawn: dict[str, str] = {}
    for name, axis in spec.variants.items():
        if axis.values and axis.applies(drawn):
            among = [v for v in axis.values if v in allowed.get(name, axis.values)]
            if not among:
                raise Refusal(
                    Reason.BINDING, f"{spec.id} has none of {list(allowed[name])}", subject=name
                )
            drawn[name] = rng.choice(among)
        elif axis.default and name in allowed and axis.applies(drawn):
            drawn[name] = rng.choice(list(allowed[name]))
    return drawn


def _case(
    spec: StructureSpec,
    seed: int,
    *,
    variants: Mapping[str, Sequence[str]],
    sizes: Mapping[str, Sequence[int]],
    slots: Slots,
    dtype: torch.dtype | None,
) -> Case:
    import torch

    rng = random.Random(seed)
    drawn = _variant(spec, rng, variants)
    sized = {a.name: a.dim for a in spec.variants.values() if a.dim and a.applies(drawn)}
    said = {d: [int(v) for v in variants[a]] for a, d in sized.items() if a in variants}
    solved = draw_sizes(spec, rng, {**sizes, **said})
    variant = spec.complete(drawn | {axis: str(solved[dim]) for axis, dim in sized.items()})
    batched = rng.random() < 0.5
    kit = _Kit(
        spec=spec,
        variant=variant,
        sizes=solved,
        rng=rng,
        batched=batched and _folds(spec),
        dtype=dtype or torch.float32,
        source=torch.Generator().manual_seed(seed),
    )
    inputs, weights = kit.some(spec.inputs, slots), kit.some(spec.slots, slots)
    there = {base(name) for name in (*inputs, *weights)}
    tensors = [t for g in (spec.inputs, spec.slots) for n, t in g.items() if n in there]
    used = {n for t in tensors for n in t.used()} | set(sized.values())
    helpers = {n for rule in spec.constraints for n in rule.names()}
    helpers -= {n for g in (spec.inputs, spec.slots) for t in g.values() for n in t.used()}
    kept = {n: s for n, s in solved.items() if n in used | helpers}
    later: tuple[dict[str, torch.Tensor], ...] = ()
    state = spec.state_inputs(variant)
    if state:
        fresh = {n: t for n, t in spec.inputs.items() if n in there and n not in state}
        later = tuple(kit.again(fresh) for _ in range(CALLS - 1))
    return Case(spec, seed, kept, variant, inputs, weights, later)


def _folds(spec: StructureSpec) -> bool:
    """Whether rows stand for any number of leading dims, and not for one batch dim."""
    first = [t.dims for t in spec.inputs.values() if t.dims and str(t.dims[0]) == spec.rows]
    return bool(first) and all(len(dims) <= 2 for dims in first)


@dataclass
class _Kit:
    """What the tensors of one case are made with."""

    spec: StructureSpec
    variant: Mapping[str, str]
    sizes: Mapping[str, int]
    rng: random.Random
    batched: bool
    dtype: torch.dtype
    source: torch.Generator
    chosen: dict[str, Expr] = field(default_factory=dict)
    carried: bool | None = None

    def some(self, group: Mapping[str, TensorSpec], slots: Slots) -> dict[str, torch.Tensor]:
        """Every tensor of the group that this variant needs, and some of those it may have."""
        angles: dict[str, torch.Tensor] = {}
        made: dict[str, torch.Tensor] = {}
        for tensor in group.values():
            coin = self.rng.random() < 0.5
            if tensor.carries:  # one coin for all state: a call carries it whole
                self.carried = coin if self.carried is None else self.carried
                coin = self.carried
            wanted = {Slots.DRAWN: coin, Slots.ALL: True, Slots.NONE: False}[slots]
            if tensor.applies(self.variant) and (tensor.presence is Presence.REQUIRED or wanted):
                made |= self._tensors(tensor, angles)
        return made

    def again(self, group: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
        """Other values of the same tensors."""
        angles: dict[str, torch.Tensor] = {}
        made: dict[str, torch.Tensor] = {}
        for tensor in group.values():
            made |= self._tensors(tensor, angles)
        return made

    def _tensors(
        self, tensor: TensorSpec, angles: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        return {name: self._make(tensor, angles) for name in tensor.tensor_names(self.sizes)}

    def _make(self, tensor: TensorSpec, angles: dict[str, torch.Tensor]) -> torch.Tensor:
        import torch

        shape = [evaluate(self._choose(dim), self.sizes) for dim in tensor.dims]
        value = values(tensor.domain, shape, self.sizes, self.source, angles)
        if len(shape) > 1 and tensor.layout and tensor.layout != "table":
            value = value / math.sqrt(math.prod(shape[1:]))
        if self.batched and tensor.dims and str(tensor.dims[0]) == self.spec.rows:
            value = value[None]
        fixed = None if tensor.dtype == "@binding" else getattr(torch, tensor.dtype)
        return value.to(fixed or self.dtype)

    def _choose(self, dim: Expr | Alternatives) -> Expr:
        """One of the alternatives; the same one wherever a case has the same alternatives."""
        if isinstance(dim, Alternatives):
            return self.chosen.setdefault(str(dim), self.rng.choice(options(dim)))
        return dim
