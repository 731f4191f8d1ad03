"""Every place of a ``structure.yaml`` where sizes are written, and what can never be one there."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from flashrt.spec.dims import (
    Constraint,
    Dim,
    Expr,
    Name,
    Number,
    Operation,
    Relation,
    constraint,
    evaluate,
    names,
    options,
    parse,
    single,
)
from flashrt.spec.expr import MAX_DIM, root
from flashrt_runtime.reason import Refusal

# Elements that no tensor has: 2**40 of them are a tebibyte at one byte each.
MAX_ELEMENTS = 2**40
# Sizes that are tried for a name: the common ones, one that most numbers divide, the largest.
_SIZES = (*range(1, 17), 20, 24, 32, 48, 64, 96, 128, 1024, 720_720, MAX_DIM)
_TRIES = 500


@dataclass(frozen=True)
class Place:
    """Where sizes are written: a dim, a count, a bound of a domain or a constraint."""

    path: str
    text: Any
    kind: str

    def read(self) -> Dim | Constraint:
        """What is written there. Raises :class:`Refusal` (SCHEMA) for what cannot be read."""
        if self.kind == "constraint":
            return constraint(self.text)
        if self.kind == "repeat":
            return Name(self.text)
        return single(self.text) if self.kind == "bound" else parse(self.text)


def tensors(value: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The path of each tensor and what is said of it."""
    boundary = value.get("boundary", {})
    for where, entries in (
        ("$.boundary.inputs", boundary.get("inputs", {})),
        ("$.boundary.outputs", boundary.get("outputs", {})),
        ("$.weights", value.get("weights", {})),
        ("$.calibration.points", value.get("calibration", {}).get("points", {})),
        ("$.captures", value.get("captures", {})),
    ):
        for name, tensor in entries.items():
            yield f"{where}.{name}", tensor


def places(value: Mapping[str, Any]) -> Iterator[Place]:
    """Every place of a document that satisfies the schema."""
    for path, tensor in tensors(value):
        for i, text in enumerate(tensor.get("dims", ())):
            yield Place(f"{path}.dims[{i}]", text, "dim")
        if "repeat" in tensor:
            yield Place(f"{path}.repeat", tensor["repeat"], "repeat")
        for field in ("below", "within"):
            if field in tensor.get("domain", {}):
                yield Place(f"{path}.domain.{field}", tensor["domain"][field], "bound")
    for i, text in enumerate(value.get("constraints", ())):
        yield Place(f"$.constraints[{i}]", text, "constraint")


def unfit(found: Dim | Constraint) -> str:
    """Why no sizes of its names make this a size, or hold; empty where some do."""
    if isinstance(found, Constraint):
        return _broken(found)
    return next((said for said in map(_unfit, options(found)) if said), "")


def least(found: Dim) -> int:
    """The smallest size that was found for any alternative of a dim; 1 where there is none."""
    return min((size for size in map(_least, options(found)) if size), default=1)


def too_large(tensor: Mapping[str, Any]) -> str:
    """What is wrong with a tensor that has too many elements at its smallest; else empty."""
    try:
        size = math.prod(least(parse(text)) for text in tensor.get("dims", ()))
    except Refusal:  # said at the dim itself
        return ""
    return "" if size <= MAX_ELEMENTS else f"it has at least {size} elements"


@lru_cache(maxsize=4096)
def _least(expr: Expr) -> int:
    """The smallest size among the tries, 0 where none is a size."""
    sizes = [size for size in (_size(expr, drawn) for drawn in _drawn(expr)) if size]
    return min(sizes, default=0)


def _unfit(expr: Expr) -> str:
    if _least(expr):
        return ""
    try:
        evaluate(expr, dict.fromkeys(names(expr), 1))
    except Refusal as error:
        what = error.what
    return f"{expr} is no size at any size of its names: at 1 each, {what}"


def _size(expr: Expr, drawn: Mapping[str, int]) -> int:
    try:
        return evaluate(expr, drawn)
    except Refusal:
        return 0


@lru_cache(maxsize=1024)
def _broken(rule: Constraint) -> str:
    for drawn in _drawn(rule.difference):
        try:
            if rule.holds(drawn) or _solved(rule, drawn):
                return ""
        except Refusal:  # a division by zero here
            continue
    return f"no sizes satisfy the constraint {rule}"


def _solved(rule: Constraint, drawn: Mapping[str, int]) -> bool:
    """Whether an ``==`` holds once one of its names is solved from the others."""
    if rule.relation is not Relation.EQUAL:
        return False
    for name in drawn:
        rest = {other: size for other, size in drawn.items() if other != name}
        value = root(rule.difference, Fraction(0), rest)
        if isinstance(value, Fraction) and value.denominator == 1 and 0 < value <= MAX_DIM:
            return rule.holds(rest | {name: int(value)})
    return False


def _drawn(expr: Expr) -> Iterator[dict[str, int]]:
    """Sizes to try for the names of an expression, the same ones each time."""
    used = sorted(names(expr))
    written = _numbers(expr)
    numbers = {n + step for n in written for step in (-1, 0, 1)}
    numbers |= {math.prod(written) * n for n in (1, 2, 3)}
    ladder = sorted({*_SIZES, *(n for n in numbers if 1 <= n <= MAX_DIM)})
    for size in ladder:
        yield dict.fromkeys(used, size)
    if len(used) < 2:
        return
    rng = random.Random(0)
    for _ in range(_TRIES):
        yield {name: rng.choice(ladder) for name in used}


def _numbers(expr: Expr) -> frozenset[int]:
    if isinstance(expr, Operation):
        return _numbers(expr.left) | _numbers(expr.right)
    return frozenset({expr.value}) if isinstance(expr, Number) else frozenset()
