"""Dims algebra: ``3*D``, ``D/2``, ``(Hq+2*Hkv)*D`` parsed, evaluated and solved, exactly.

The grammar is integers, names, ``+ - * /`` and parentheses. Arithmetic is rational: ``D/2`` of an
odd ``D`` is a contradiction, never a rounding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from flashrt_runtime.reason import Reason, Refusal

MAX_LENGTH = 200
MAX_DEPTH = 32
MAX_DIM = 2**40
_TOKEN = re.compile(r"\s*(?:(?P<number>[0-9]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<op>[-+*/()]))")

# A polynomial in one unknown: coefficients, lowest degree first.
_Poly = tuple[Fraction, ...]


@dataclass(frozen=True)
class Number:
    """A non-negative integer."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Name:
    """A symbolic dim."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Operation:
    """``left op right`` with op one of ``+ - * /``."""

    op: str
    left: Expr
    right: Expr

    def __str__(self) -> str:
        return f"({self.left}{self.op}{self.right})"


Expr = Number | Name | Operation


@dataclass(frozen=True)
class Equation:
    """An expression, the size it was seen to have and who says so."""

    expr: Expr
    value: int
    source: str


def _refuse(text: str, what: str) -> Refusal:
    return Refusal(
        Reason.SCHEMA, what, subject=repr(text), do="write integers, names, + - * / and parentheses"
    )


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise _refuse(text[:20] + "…", f"a dim is longer than {MAX_LENGTH} characters")
        self.text = text
        self.tokens = self._split(text)
        self.at = 0

    @staticmethod
    def _split(text: str) -> list[str]:
        tokens, position = [], 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise _refuse(text, f"{text[position:].strip()[0]!r} is not part of a dim")
            tokens.append(match.group().strip())
            position = match.end()
        return tokens

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def chain(self, operators: str, depth: int) -> Expr:
        """Left-associative ``+ -`` over ``* /`` over atoms."""
        inner = (lambda: self.chain("*/", depth)) if operators == "+-" else lambda: self.atom(depth)
        left = inner()
        while self.peek() and self.peek() in operators:
            op = self.take()
            left = Operation(op, left, inner())
        return left

    def atom(self, depth: int) -> Expr:
        token = self.take()
        if token == "(":
            if depth >= MAX_DEPTH:
                raise _refuse(self.text, f"parentheses nest deeper than {MAX_DEPTH}")
            inside = self.chain("+-", depth + 1)
            if self.take() != ")":
                raise _refuse(self.text, "a parenthesis is not closed")
            return inside
        if token.isdecimal():
            if len(token) > 13 or int(token) > MAX_DIM:
                raise _refuse(self.text, f"{token} is larger than any dim")
            return Number(int(token))
        if token and token not in "+-*/)":
            return Name(token)
        raise _refuse(self.text, f"a name or a number was expected, found {token or 'the end'!r}")


def parse(text: str | int) -> Expr:
    """The expression a dim is written as. Raises :class:`Refusal` (SCHEMA) for anything else."""
    parser = _Parser(str(text))
    expr = parser.chain("+-", 0)
    if parser.peek():
        raise _refuse(str(text), f"{parser.peek()!r} was not expected")
    return expr


def names(expr: Expr) -> frozenset[str]:
    """The symbolic dims an expression uses."""
    if isinstance(expr, Operation):
        return names(expr.left) | names(expr.right)
    return frozenset({expr.name}) if isinstance(expr, Name) else frozenset()


def _add(a: _Poly, b: _Poly, sign: int = 1) -> _Poly:
    size = max(len(a), len(b))
    pad = [Fraction(0)]
    return tuple(
        x + sign * y
        for x, y in zip(
            list(a) + pad * (size - len(a)), list(b) + pad * (size - len(b)), strict=True
        )
    )


def _times(a: _Poly, b: _Poly) -> _Poly:
    out = [Fraction(0)] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            out[i + j] += x * y
    return tuple(out)


def _ratio(expr: Expr, known: Mapping[str, int]) -> tuple[_Poly, _Poly]:
    """The expression as numerator over denominator in its one unknown."""
    one: _Poly = (Fraction(1),)
    if isinstance(expr, Number):
        return (Fraction(expr.value),), one
    if isinstance(expr, Name):
        if expr.name in known:
            return (Fraction(known[expr.name]),), one
        return (Fraction(0), Fraction(1)), one
    (a, b), (c, d) = _ratio(expr.left, known), _ratio(expr.right, known)
    if expr.op == "*":
        return _times(a, c), _times(b, d)
    if expr.op == "/":
        return _times(a, d), _times(b, c)
    return _add(_times(a, d), _times(c, b), 1 if expr.op == "+" else -1), _times(b, d)


def evaluate(expr: Expr, dims: Mapping[str, int]) -> int:
    """The size under ``dims``, a positive integer.

    Raises :class:`Refusal` (SHAPE) when a name has no size, or the result is not a positive
    integer (``D/2`` of an odd ``D``, a division by zero).
    """
    missing = sorted(names(expr) - set(dims))
    if missing:
        raise Refusal(Reason.SHAPE, f"{missing[0]} has no size", subject=str(expr))
    top, bottom = _ratio(expr, dims)
    if bottom[0] == 0:
        raise Refusal(Reason.SHAPE, "divides by zero", subject=str(expr))
    value = top[0] / bottom[0]
    if value.denominator != 1 or value <= 0:
        raise Refusal(Reason.SHAPE, f"{value} is not a size", subject=f"{expr} with {dict(dims)}")
    return int(value)


def _unknown(equation: Equation, name: str, known: Mapping[str, int]) -> int | None:
    """The one unknown's size, or None where this equation alone does not determine it."""
    top, bottom = _ratio(equation.expr, known)
    poly = list(_add(top, _times(bottom, (Fraction(equation.value),)), -1))
    while poly and poly[-1] == 0:
        poly.pop()
    if len(poly) > 2 or not poly:
        return None
    if len(poly) == 1:
        raise Refusal(
            Reason.SHAPE,
            f"{equation.source} says {equation.expr} = {equation.value}, which no {name} satisfies",
        )
    value = -poly[0] / poly[1]
    if value.denominator != 1 or value <= 0:
        raise Refusal(
            Reason.SHAPE,
            f"{equation.source} says {equation.expr} = {equation.value}, so {name} would be "
            f"{value}, which is not a size",
        )
    return int(value)


def _check(equation: Equation, known: Mapping[str, int], sources: Mapping[str, str]) -> None:
    used = names(equation.expr)
    others = ", ".join(f"{sources[n]} says {n} = {known[n]}" for n in sorted(used))
    said = f"{equation.source} says {equation.expr} = {equation.value}"
    try:
        value = evaluate(equation.expr, known)
    except Refusal as error:
        raise Refusal(Reason.SHAPE, f"{said}, but {others} ({error.what})") from error
    if value != equation.value:
        raise Refusal(Reason.SHAPE, f"{said}, but {others or f'it is {value}'}")


def solve(equations: Iterable[Equation], known: Mapping[str, int] | None = None) -> dict[str, int]:
    """The size of every name in ``equations``.

    ``known`` are sizes given from outside. Raises :class:`Refusal` (SHAPE): a contradiction names
    both sources; a name that the equations do not determine is named.
    """
    dims = dict(known or {})
    sources = dict.fromkeys(dims, "the caller")
    pending = list(equations)
    while pending:
        waiting: list[Equation] = []
        for equation in pending:
            free = sorted(names(equation.expr) - set(dims))
            if not free:
                _check(equation, dims, sources)
                continue
            value = _unknown(equation, free[0], dims) if len(free) == 1 else None
            if value is None:
                waiting.append(equation)
                continue
            dims[free[0]] = value
            sources[free[0]] = equation.source
            _check(equation, dims, sources)
        if len(waiting) == len(pending):
            free = sorted(names(waiting[0].expr) - set(dims))
            raise Refusal(
                Reason.SHAPE,
                f"{waiting[0].source} says {waiting[0].expr} = {waiting[0].value}, which does not "
                f"determine {' and '.join(free)}",
            )
        pending = waiting
    return dims


def equations(exprs: Sequence[Expr], shape: Sequence[int], source: str) -> list[Equation]:
    """One equation per axis of a tensor. Raises :class:`Refusal` (SHAPE) when the ranks differ."""
    if len(exprs) != len(shape):
        written = "[" + ", ".join(str(e) for e in exprs) + "]"
        raise Refusal(Reason.SHAPE, f"{source} has shape {list(shape)}, the spec says {written}")
    return [
        Equation(expr, int(size), f"{source} axis {axis}")
        for axis, (expr, size) in enumerate(zip(exprs, shape, strict=True))
    ]
