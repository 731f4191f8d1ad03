"""Draws a size for every dim of a structure, small and within its constraints."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial

from flashrt.spec.dims import (
    Constraint,
    Dim,
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
# Never more: in float32, 64 MiB where no dim is narrowed and 1 GiB where the caller narrows some.
MOST = 2**24
MOST_NARROWED = 2**28
# Tensors that one repeated tensor stands for.
MOST_TENSORS = 256

Check = Callable[[Mapping[str, int]], None]


class NoSize(Refusal):
    """No size of many satisfies the spec; ``path`` is the place of the spec that says why."""

    def __init__(self, spec: StructureSpec, path: str, what: str) -> None:
        super().__init__(Reason.SHAPE, what, subject=f"{spec.id} {path}")
        self.path = path


def draw_sizes(
    spec: StructureSpec, rng: random.Random, allowed: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """A size for each dim; ``allowed`` narrows a dim to sizes.

    Where an ``==`` leaves a dim open that the caller did not narrow, that dim is solved from it.
    Raises :class:`NoSize` (SHAPE) when none of many tries satisfies the spec, or each makes tensors
    too large to be drawn. Nothing is drawn before that is known.
    """
    ladders = {n: tuple(allowed.get(n, ladder(spec, n))) for n in spec.dims}
    free = set(spec.dims) - set(allowed)
    problem: NoSize | None = None
    farthest = -1
    fits: dict[str, int] = {}
    fewest = math.inf
    most = MOST_NARROWED if allowed else MOST
    checks: list[Check] = [*_checks(spec), partial(_drawable, spec, most)]
    for _ in range(TRIES):
        drawn = {name: rng.choice(ladders[name]) for name in spec.dims}
        sizes = _related(spec, drawn, free)
        passed = 0
        try:
            for check in checks:
                check(sizes)
                passed += 1
        except NoSize as error:  # of checks in a row the last one says what no size satisfies
            if passed > farthest:
                problem, farthest = error, passed
            continue
        elements = _elements(spec, sizes)
        if not free or elements <= ELEMENTS:
            return sizes
        if elements < fewest:
            fits, fewest = sizes, elements
    if fits:
        return fits
    raise problem or NoSize(spec, "$.dims", "no size fits")


def ladder(spec: StructureSpec, name: str) -> tuple[int, ...]:
    """The sizes that a dim is drawn from, by where it stands in the tensors."""
    if name == spec.rows:
        return ROWS
    every = [
        (axis, dim, tensor) for _, tensor in spec.tensors() for axis, dim in enumerate(tensor.dims)
    ]
    bare = [(axis, len(tensor.dims)) for axis, dim, tensor in every if str(dim) == name]
    width = any(axis == rank - 1 for axis, rank in bare)
    # A matrix has two widths; of more axes only the last is one.
    length = any(axis < rank - 1 and rank > 2 for axis, rank in bare)
    bound = any(name in rule.names() for rule in spec.constraints)
    factor = any(name in _factors(option) for _, dim, _ in every for option in options(dim))
    if width:
        return FACTORS if length or bound or factor else WIDTHS
    if bound or factor or any(tensor.repeat == name for _, tensor in spec.tensors()):
        return COUNTS
    return LENGTHS if length else WIDTHS


def _factors(expr: Expr) -> frozenset[str]:
    """The names that the expression multiplies with one another."""
    if not isinstance(expr, Operation):
        return frozenset()
    if expr.op == "*" and names(expr.left) and names(expr.right):
        return names(expr)
    return _factors(expr.left) | _factors(expr.right)


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


def _checks(spec: StructureSpec) -> Iterator[Check]:
    """What sizes must satisfy, in order; each raises :class:`NoSize` at its own place."""
    for i, rule in enumerate(spec.constraints):
        yield _placed(spec, f"$.constraints[{i}]", partial(_held, rule))
    for path, tensor in spec.tensors():
        for i, dim in enumerate(tensor.dims):
            yield _placed(spec, f"{path}.dims[{i}]", partial(_sized, dim))
        if tensor.repeat:
            yield _placed(spec, f"{path}.repeat", partial(_counted, tensor))
        if tensor.domain.whole or tensor.domain.kind is DomainKind.ANGLE:
            yield _placed(spec, f"{path}.domain", partial(_valued, tensor))


def _placed(spec: StructureSpec, path: str, check: Check) -> Check:
    def checked(sizes: Mapping[str, int]) -> None:
        try:
            check(sizes)
        except Refusal as error:
            where = f" ({error.subject})" if error.subject else ""
            raise NoSize(spec, path, f"{error.what}{where}") from error

    return checked


def _held(rule: Constraint, sizes: Mapping[str, int]) -> None:
    hold([rule], sizes)


def _sized(dim: Dim, sizes: Mapping[str, int]) -> None:
    for option in options(dim):
        evaluate(option, sizes)


def _counted(tensor: TensorSpec, sizes: Mapping[str, int]) -> None:
    count = sizes[tensor.repeat]
    if count > MOST_TENSORS:
        raise Refusal(Reason.SHAPE, f"{count} tensors are more than are drawn ({MOST_TENSORS})")


def _valued(tensor: TensorSpec, sizes: Mapping[str, int]) -> None:
    if tensor.domain.kind is DomainKind.ANGLE:
        if evaluate(tensor.dims[-1], sizes) % 2:
            what = "a table of angles whose second half repeats the first has an even width"
            raise Refusal(Reason.SHAPE, what)
        return
    bound = evaluate(tensor.domain.bound, sizes)
    if tensor.domain.kind is DomainKind.RANGES:
        rows = evaluate(tensor.dims[0], sizes)
        if not rows <= bound:
            raise Refusal(Reason.SHAPE, f"{bound} positions hold no {rows} disjoint ranges")
        if bound > MOST:  # the positions are shuffled
            raise Refusal(Reason.SHAPE, f"{bound} positions are more than are drawn ({MOST})")


def _drawable(spec: StructureSpec, most: int, sizes: Mapping[str, int]) -> None:
    """Refuse, at the tensor that takes all of them over ``most`` elements; each alternative is
    taken at its largest.
    """
    total = 0
    for path, tensor in spec.tensors():
        shape = [max(evaluate(o, sizes) for o in options(dim)) for dim in tensor.dims]
        total += math.prod(shape) * sizes.get(tensor.repeat, 1)
        if total > most:
            widest = f"{path}.dims[{shape.index(max(shape))}]" if shape else path
            what = f"{total} elements are more than are drawn ({most}); here the shape is {shape}"
            raise NoSize(spec, widest, what)


def _elements(spec: StructureSpec, sizes: Mapping[str, int]) -> int:
    return sum(
        math.prod(evaluate(dim, sizes) for dim in tensor.dims) * sizes.get(tensor.repeat, 1)
        for _, tensor in spec.tensors()
    )
