"""Solves symbolic dims from the sizes that tensors have; contradictions name both sources."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from flashrt.spec.constraint import Constraint, Relation, constraint
from flashrt.spec.expr import (
    Alternatives,
    Dim,
    Expr,
    Name,
    Number,
    Operation,
    evaluate,
    exact,
    names,
    options,
    parse,
    root,
    single,
)
from flashrt_runtime.reason import Reason, Refusal

__all__ = [
    "Alternatives",
    "Constraint",
    "Dim",
    "Equation",
    "Expr",
    "Name",
    "Number",
    "Operation",
    "Relation",
    "constraint",
    "equations",
    "evaluate",
    "exact",
    "hold",
    "names",
    "options",
    "parse",
    "single",
    "solve",
]

# Ways to choose among the alternatives of all tensors of a call; a real structure has a handful.
MAX_WAYS = 1024


@dataclass(frozen=True)
class Equation:
    """A dim, the size it was seen to have and who says so."""

    expr: Dim
    value: int
    source: str


def equations(exprs: Sequence[Dim], shape: Sequence[int], source: str) -> list[Equation]:
    """One equation per axis of a tensor. Raises :class:`Refusal` (SHAPE) when the ranks differ."""
    if len(exprs) != len(shape):
        written = "[" + ", ".join(str(e) for e in exprs) + "]"
        raise Refusal(Reason.SHAPE, f"{source} has shape {list(shape)}, the spec says {written}")
    return [
        Equation(expr, int(size), f"{source} axis {axis}")
        for axis, (expr, size) in enumerate(zip(exprs, shape, strict=True))
    ]


def solve(
    equations: Iterable[Equation],
    known: Mapping[str, int] | None = None,
    *,
    constraints: Sequence[Constraint] = (),
    partial: bool = False,
) -> dict[str, int]:
    """The size of every name in ``equations``, and of those that a constraint's ``==`` gives.

    ``known`` are sizes given from outside. Of alternatives the first holds that is consistent with
    everything else. ``partial`` leaves out the names that nothing determines, where they are
    refused otherwise.

    Raises :class:`Refusal`: SHAPE for a contradiction (both sources are named), for a constraint
    that the sizes break, and for a name that the equations do not determine; AMBIGUOUS where two
    alternatives are consistent and give a dim different sizes.
    """
    plain: list[Equation] = []
    forks: dict[tuple[str, int], Equation] = {}
    for equation in equations:
        if isinstance(equation.expr, Alternatives):
            forks.setdefault((str(equation.expr), equation.value), equation)
        else:
            plain.append(equation)
    ways = math.prod(len(options(fork.expr)) for fork in forks.values())
    if ways > MAX_WAYS:
        raise Refusal(Reason.SHAPE, f"the alternatives can be chosen in {ways} ways")
    state = _State(dict(known or {}), dict.fromkeys(known or {}, "the caller"))
    found = _branch(state, plain, list(forks.values()), tuple(constraints), partial)
    if partial:
        return {n: s for n, s in found[0].items() if all(other.get(n) == s for other in found)}
    for other in found[1:]:
        if not (other.items() <= found[0].items() or found[0].items() <= other.items()):
            raise _ambiguous(found[0], other)
    return found[0]


def hold(constraints: Iterable[Constraint], sizes: Mapping[str, int]) -> None:
    """Refuse sizes that break a constraint; one whose names have no size yet is passed.

    Raises :class:`Refusal` (SHAPE) naming the constraint and the sizes.
    """
    _held(constraints, sizes, {})


@dataclass
class _State:
    """Sizes solved so far and who said each."""

    sizes: dict[str, int]
    sources: dict[str, str] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State(dict(self.sizes), dict(self.sources))

    def free(self, expr: Dim) -> list[str]:
        return sorted(names(expr) - set(self.sizes))

    def said(self, used: Iterable[str]) -> str:
        return _said(used, self.sizes, self.sources)


def _said(used: Iterable[str], sizes: Mapping[str, int], sources: Mapping[str, str]) -> str:
    return ", ".join(
        f"{sources[n]} says {n} = {sizes[n]}" if n in sources else f"{n} = {sizes[n]}"
        for n in sorted(used)
        if n in sizes
    )


def _branch(
    state: _State,
    pending: list[Equation],
    forks: list[Equation],
    constraints: tuple[Constraint, ...],
    partial: bool,
) -> list[dict[str, int]]:
    """Every consistent solution, in the order of the alternatives; never an empty list."""
    waiting = _propagate(state, pending, constraints)
    if not forks:
        _held(constraints, state.sizes, state.sources)
        if waiting and not partial:
            free = state.free(waiting[0].expr)
            raise Refusal(
                Reason.SHAPE,
                f"{waiting[0].source} says {waiting[0].expr} = {waiting[0].value}, which does not "
                f"determine {' and '.join(free)}",
            )
        return [state.sizes]
    # The alternative with the fewest unknowns fails first.
    fork = min(forks, key=lambda f: len(state.free(f.expr)))
    rest = [other for other in forks if other is not fork]
    found: list[dict[str, int]] = []
    refused: list[Refusal] = []
    for option in options(fork.expr):
        try:
            chosen = [*waiting, Equation(option, fork.value, fork.source)]
            found += _branch(state.copy(), chosen, rest, constraints, partial)
        except Refusal as error:
            if not _misses(option, fork.value, state):
                refused.append(error)
    if found:
        return found
    if refused:
        raise refused[0]
    others = state.said(names(fork.expr))
    raise Refusal(
        Reason.SHAPE,
        f"{fork.source} says {fork.expr} = {fork.value}, but {others or 'no alternative fits'}",
    )


def _misses(option: Expr, value: int, state: _State) -> bool:
    """Whether an alternative already has another size, so its refusal says nothing more."""
    if state.free(option):
        return False
    try:
        return exact(option, state.sizes) != value
    except Refusal:
        return True


def _propagate(
    state: _State, pending: list[Equation], constraints: tuple[Constraint, ...]
) -> list[Equation]:
    """Solve what has one unknown until nothing moves; what still waits is returned."""
    while True:
        waiting: list[Equation] = []
        before = len(state.sizes)
        for equation in pending:
            free = state.free(equation.expr)
            if not free:
                _check(equation, state)
                continue
            value = _unknown(equation, free[0], state) if len(free) == 1 else None
            if value is None:
                waiting.append(equation)
                continue
            state.sizes[free[0]] = value
            state.sources[free[0]] = equation.source
            _check(equation, state)
        for rule in constraints:
            _relate(rule, state)
        if len(state.sizes) == before and len(waiting) == len(pending):
            return waiting
        pending = waiting


def _unknown(equation: Equation, name: str, state: _State) -> int | None:
    """The one unknown's size, or None where this equation alone does not determine it."""
    (expr,) = options(equation.expr)
    others = state.said(names(expr))
    said = f"{equation.source} says {equation.expr} = {equation.value}"
    said += f" where {others}" if others else ""
    value = root(expr, Fraction(equation.value), state.sizes)
    if isinstance(value, Fraction):
        if value.denominator != 1 or value <= 0:
            raise Refusal(Reason.SHAPE, f"{said}, so {name} would be {value}, which is not a size")
        return int(value)
    if value is False:
        raise Refusal(Reason.SHAPE, f"{said}, which no {name} satisfies")
    return None


def _check(equation: Equation, state: _State) -> None:
    others = state.said(names(equation.expr))
    said = f"{equation.source} says {equation.expr} = {equation.value}"
    try:
        value = evaluate(equation.expr, state.sizes)
    except Refusal as error:
        raise Refusal(Reason.SHAPE, f"{said}, but {others} ({error.what})") from error
    if value != equation.value:
        raise Refusal(Reason.SHAPE, f"{said}, but {others or f'it is {value}'}")


def _relate(rule: Constraint, state: _State) -> None:
    """Solve the one unknown of an ``==``."""
    free = state.free(rule.difference)
    if rule.relation is not Relation.EQUAL or len(free) != 1:
        return
    value = root(rule.difference, Fraction(0), state.sizes)
    if value is None:
        return
    if value is False or value.denominator != 1 or value <= 0:
        raise _broken(rule, state.sizes, state.sources)
    state.sizes[free[0]] = int(value)
    state.sources[free[0]] = f"the constraint {rule}"


def _held(
    constraints: Iterable[Constraint], sizes: Mapping[str, int], sources: Mapping[str, str]
) -> None:
    for rule in constraints:
        if rule.names() <= set(sizes) and not rule.holds(sizes):
            raise _broken(rule, sizes, sources)


def _broken(rule: Constraint, sizes: Mapping[str, int], sources: Mapping[str, str]) -> Refusal:
    return Refusal(
        Reason.SHAPE,
        f"the constraint {rule} does not hold: {_said(rule.names(), sizes, sources)}",
        do="only sizes that satisfy it are this structure",
    )


def _ambiguous(first: Mapping[str, int], second: Mapping[str, int]) -> Refusal:
    differ = sorted(n for n in {*first, *second} if first.get(n) != second.get(n))
    readings = " or ".join(
        ", ".join(f"{n} = {s[n]}" for n in differ if n in s) for s in (first, second)
    )
    return Refusal(
        Reason.AMBIGUOUS,
        f"the shapes can be read in two ways: {readings}",
        do="give a tensor whose shape tells them apart",
    )
