"""Draws cases of a structure and compares any callable with its reference.

An impl's test needs no knowledge of the structure: ``for case in draw(spec, …)`` gives sizes,
variant, inputs and weights; ``compare`` runs reference and candidate on them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from flashrt.spec import dims
from flashrt.spec.model import Presence, StructureSpec, TensorSpec
from flashrt.spec.reference import Reference
from flashrt_runtime.contract import BindRequest, Point, Seam
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

SIZES = (16, 32, 48, 64)
ROWS = (1, 2, 5, 16)
Candidate = Callable[
    [Mapping[str, "torch.Tensor"], Mapping[str, "torch.Tensor"], Mapping[str, str]],
    Mapping[str, "torch.Tensor"],
]


class Slots(Enum):
    """Which optional tensors a case has."""

    DRAWN = "drawn"
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True)
class Case:
    """One drawn case: every dim's size, the variant, and tensors by the spec's names."""

    spec: StructureSpec = field(repr=False)
    seed: int
    dims: Mapping[str, int]
    variant: Mapping[str, str]
    inputs: Mapping[str, torch.Tensor] = field(repr=False)
    weights: Mapping[str, torch.Tensor] = field(repr=False)

    def request(
        self, form: str, scales: Mapping[str, float], roles: Sequence[str] = ("self",)
    ) -> BindRequest:
        """The case as an impl sees it: a seam in a host whose modules are named by role."""
        solved = {n: s for n, s in self.dims.items() if n in self.spec.weight_dims()}
        seam = Seam(
            id=f"{self.spec.name}:case.{self.seed}",
            structure=self.spec.id,
            members={role: f"case.{role}" for role in roles},
            variant=self.variant,
            dims=solved,
            weights={slot: f"case.{slot}" for slot in self.weights},
            points={name: Point("case", "input") for name in self.spec.points},
        )
        return BindRequest(seam=seam, weights=self.weights, scales=scales, form=form)


@dataclass(frozen=True)
class Agreement:
    """One output against the reference's.

    ``cosine`` and ``norm_ratio`` (candidate over reference) are over all elements in float64;
    ``max_abs`` is the largest absolute difference, ``scale`` the reference's largest magnitude;
    ``nonfinite`` counts the candidate's NaN and infinite elements.
    """

    output: str
    elements: int
    cosine: float
    max_abs: float
    scale: float
    norm_ratio: float
    nonfinite: int

    def within(self, cosine: float, relative: float = math.inf) -> bool:
        """Whether cosine reaches the floor and max_abs / scale stays under ``relative``.

        A NaN anywhere, or one non-finite element, is not within.
        """
        if self.nonfinite or not (self.cosine >= cosine):
            return False
        return self.max_abs <= relative * self.scale


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
    Numeric axes take their default. Tensors are ``dtype``, float32 by default. Raises
    :class:`Refusal` (SHAPE) when no drawn size satisfies the spec's dims.
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
    drawn: dict[str, str] = {}
    for name, axis in spec.variants.items():
        if axis.values and axis.applies(drawn):
            values = [v for v in axis.values if v in allowed.get(name, axis.values)]
            if not values:
                raise Refusal(
                    Reason.BINDING, f"{spec.id} has none of {list(allowed[name])}", subject=name
                )
            drawn[name] = rng.choice(values)
    return spec.complete(drawn)


def _sizes(
    spec: StructureSpec, rng: random.Random, allowed: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    every = [
        d
        for group in (spec.inputs, spec.outputs, spec.slots, spec.points)
        for tensor in group.values()
        for d in tensor.dims
    ]
    problem: Refusal | None = None
    for _ in range(200):
        drawn = {
            name: rng.choice(tuple(allowed.get(name, ROWS if name == spec.rows else SIZES)))
            for name in spec.dims
        }
        try:
            for expr in every:
                dims.evaluate(expr, drawn)
            return drawn
        except Refusal as error:
            problem = error
    raise problem or Refusal(Reason.SHAPE, "no size fits", subject=spec.id)


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
    variant = _variant(spec, rng, variants)
    solved = _sizes(spec, rng, sizes)
    batched = rng.random() < 0.5
    source = torch.Generator().manual_seed(seed)

    def make(tensor: TensorSpec) -> torch.Tensor:
        shape = [dims.evaluate(d, solved) for d in tensor.dims]
        value = torch.randn(shape, generator=source)
        if len(shape) > 1 and tensor.layout:
            value = value / math.sqrt(shape[-1])
        if batched and tensor.dims and str(tensor.dims[0]) == spec.rows:
            value = value[None]
        return value.to(dtype or torch.float32)

    def some(group: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
        made = {}
        for name, tensor in group.items():
            coin = rng.random() < 0.5
            wanted = {Slots.DRAWN: coin, Slots.ALL: True, Slots.NONE: False}[slots]
            if tensor.applies(variant) and (tensor.presence is Presence.REQUIRED or wanted):
                made[name] = make(tensor)
        return made

    return Case(spec, seed, solved, variant, some(spec.inputs), some(spec.slots))


def compare(reference: Reference, candidate: Candidate, case: Case) -> list[Agreement]:
    """Every output of the candidate against the reference's, state included.

    The candidate gets its own copies, so that one that writes its inputs cannot agree with
    itself. Raises :class:`Refusal` (STRUCTURE) when an output is missing, SHAPE or DTYPE when it
    is not the reference's.
    """
    expected = reference.run(case.inputs, case.weights, case.variant)
    got = candidate(
        {n: t.clone() for n, t in case.inputs.items()},
        {n: t.clone() for n, t in case.weights.items()},
        dict(case.variant),
    )
    for name, value in expected.items():
        if name not in got:
            raise Refusal(Reason.STRUCTURE, f"the candidate returned no {name}", subject=str(case))
        if got[name].shape != value.shape:
            raise Refusal(
                Reason.SHAPE,
                f"{name} has shape {list(got[name].shape)}, the reference {list(value.shape)}",
                subject=str(case),
            )
        if got[name].dtype != value.dtype:
            raise Refusal(
                Reason.DTYPE,
                f"{name} is {got[name].dtype}, the reference {value.dtype}",
                subject=str(case),
            )
    return [agreement(name, value, got[name]) for name, value in expected.items()]


def agreement(name: str, expected: torch.Tensor, got: torch.Tensor) -> Agreement:
    """Compare two tensors of one shape."""
    import torch

    a, b = expected.double().flatten(), got.double().flatten()
    across = float(a.norm() * b.norm())
    both_zero = float(a.norm()) == 0.0 and float(b.norm()) == 0.0
    return Agreement(
        output=name,
        elements=a.numel(),
        cosine=1.0 if both_zero else (float(a @ b) / across if across else math.nan),
        max_abs=float((a - b).abs().max()),
        scale=float(a.abs().max()),
        norm_ratio=float(b.norm()) / float(a.norm()) if float(a.norm()) else math.nan,
        nonfinite=int((~torch.isfinite(b)).sum()),
    )


def amax(reference: Reference, case: Case) -> dict[str, float]:
    """The largest magnitude at each calibration point of this case."""
    found: dict[str, Any] = reference.points(case.inputs, case.weights, case.variant)
    return {name: float(tensor.abs().max()) for name, tensor in found.items()}
