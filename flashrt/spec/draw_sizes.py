"""Draws a size for every dim of a structure, small and within its constraints."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction

from flashrt.spec.dims import (
    Expr,
    Name,
    Operation,
    Relation,
    evaluate,
    hold,
    names,
    options,
)
from flashrt.spec.domain import DomainKind
from flashrt.spec.expr import root
from flashrt.spec.model import StructureSpec, TensorSpec
from flashrt_runtime.reason import Reason, Refusal

WIDTHS = (16, 32, 48, 64)
ROWS = (1, 2, 5, 16)
LENGTHS = (1, 2, 3, 5, 8, 13)
COUNTS = (1, 2, 3, 4, 6)
# Widths that others multiply: the width of a head, of a patch.
FACTORS = (4, 8, 16, 32)
TRIES = 400
# Elements of all tensors of a case, where the caller leaves a dim open.
ELEMENTS = 2**16


def draw_sizes(
    spec: StructureSpec, rng: random.Random, allowed: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """A size for each dim; ``allowed`` narrows a dim to sizes.

    Where an ``==`` leaves a dim open that the caller did not narrow, that dim is solved from it.
    Raises :class:`Refusal` (SHAPE) when none of many tries satisfies the spec.
    """
    ladders = {n: tuple(allowed.get(n, ladder(spec, n))) for n in spec.dims}
    free = set(spec.dims) - set(allowed)
    problem: Refusal | None = None
    fits: dict[str, int] = {}
    fewest = math.inf
    for _ in range(TRIES):
        drawn = {name: rng.choice(ladders[name]) for name in spec.dims}
        try:
            sizes = _related(spec, drawn, free)
            _check(spec, sizes, allowed)
        except Refusal as error:
            problem = error
            continue
        elements = _elements(spec, sizes)
        if not free or elements <= ELEMENTS:
            return sizes
        if elements < fewest:
            fits, fewest = sizes, elements
    if fits:
        return fits
    raise problem or Refusal(Reason.SHAPE, "no size fits", subject=spec.id)


def ladder(spec: StructureSpec, name: str) -> tuple[int, ...]:
    """The sizes that a dim is drawn from, by where it stands in the tensors."""
    if name == spec.rows:
        return ROWS
    every = [
        (axis, dim, tensor) for tensor in _tensors(spec) for axis, dim in enumerate(tensor.dims)
    ]
    bare = [(axis, len(tensor.dims)) for axis, dim, tensor in every if str(dim) == name]
    width = any(axis == rank - 1 for axis, rank in bare)
    # A matrix has two widths; of more axes only the last is one.
    length = any(axis < rank - 1 and rank > 2 for axis, rank in bare)
    bound = any(name in rule.names() for rule in spec.constraints)
    factor = any(name in _factors(option) for _, dim, _ in every for option in options(dim))
    if width:
        return FACTORS if length or bound or factor else WIDTHS
    if bound or factor or any(tensor.repeat == name for tensor in _tensors(spec)):
        return COUNTS
    return LENGTHS if length else WIDTHS


def _factors(expr: Expr) -> frozenset[str]:
    """The names that the expression multiplies with one another."""
    if not isinstance(expr, Operation):
        return frozenset()
    if expr.op == "*" and names(expr.left) and names(expr.right):
        return names(expr)
    return _factors(expr.left) | _factors(expr.right)


def _tensors(spec: StructureSpec) -> list[TensorSpec]:
    groups = (spec.inputs, spec.outputs, spec.slots, spec.points)
    return [tensor for group in groups for tensor in group.values()]


def _related(spec: StructureSpec, drawn: Mapping[str, int], free: set[str]) -> dict[str, int]:
    """The drawn sizes with each ``==`` made true by solving one dim that the caller left open."""
    sizes = dict(drawn)
    for rule in spec.constraints:
        if rule.relation is not Relation.EQUAL or rule.holds(sizes):
            continue
        bare = [e.name for e in (rule.left, rule.right) if isinstance(e, Name)]
        for name in [n for n in (*bare, *sorted(rule.names())) if n in free]:
            rest = {n: s for n, s in sizes.items() if n != name}
            value = root(rule.difference, Fraction(0), rest)
            if isinstance(value, Fraction) and value.denominator == 1 and value > 0:
                sizes[name] = int(value)
                break
    return sizes


def _check(
    spec: StructureSpec, sizes: Mapping[str, int], allowed: Mapping[str, Sequence[int]]
) -> None:
    hold(spec.constraints, sizes)
    for tensor in _tensors(spec):
        for dim in tensor.dims:
            for option in options(dim):
                evaluate(option, sizes)
        if tensor.domain.kind is DomainKind.RANGES:
            rows, within = evaluate(tensor.dims[0], sizes), evaluate(tensor.domain.bound, sizes)
            if not rows <= within:
                what = f"{within} positions hold no {rows} disjoint ranges"
                raise Refusal(Reason.SHAPE, what, subject=f"{spec.id} {tensor.name}")
        if tensor.domain.kind is DomainKind.ANGLE and evaluate(tensor.dims[-1], sizes) % 2:
            what = "a table of angles whose second half repeats the first has an even width"
            raise Refusal(Reason.SHAPE, what, subject=f"{spec.id} {tensor.name}")


def _elements(spec: StructureSpec, sizes: Mapping[str, int]) -> int:
    return sum(
        math.prod(evaluate(dim, sizes) for dim in tensor.dims) * sizes.get(tensor.repeat, 1)
        for tensor in _tensors(spec)
    )
