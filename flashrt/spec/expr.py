"""Dims as they are written, ``(Hq+2*Hkv)*D`` or ``M | 1``: parsed and evaluated, exactly.

The grammar is integers, names, ``+ - * /`` and parentheses, and alternatives with ``|`` between
them at the top. Arithmetic is rational: ``D/2`` of an odd ``D`` is a contradiction, never a
rounding. Sizes are solved in :mod:`flashrt.spec.dims`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from flashrt_runtime.reason import Reason, Refusal

MAX_LENGTH = 200
MAX_DEPTH = 32
MAX_DIM = 2**40
MAX_OPTIONS = 4
# Names multiplied or divided by one another; the widest real dim has five.
MAX_DEGREE = 8
_TOKEN = re.compile(r"\s*(?:(?P<number>[0-9]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<op>[-+*/()|]))")

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


@dataclass(frozen=True)
class Alternatives:
    """``options`` of which one holds; the first is the usual one."""

    options: tuple[Number | Name | Operation, ...]

    def __str__(self) -> str:
        return " | ".join(str(option) for option in self.options)


Expr = Number | Name | Operation
Dim = Expr | Alternatives


def _refuse(text: str, what: str) -> Refusal:
    return Refusal(
        Reason.SCHEMA,
        what,
        subject=repr(text),
        do="write integers, names, + - * / ( ) and | between alternatives",
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
        if token and token not in "+-*/)|":
            return Name(token)
        raise _refuse(self.text, f"a name or a number was expected, found {token or 'the end'!r}")


def parse(text: str | int) -> Dim:
    """The expression a dim is written as. Raises :class:`Refusal` (SCHEMA) for anything else."""
    parser = _Parser(str(text))
    options = [parser.chain("+-", 0)]
    while parser.peek() == "|":
        parser.take()
        options.append(parser.chain("+-", 0))
    if parser.peek():
        raise _refuse(str(text), f"{parser.peek()!r} was not expected")
    if len(options) > MAX_OPTIONS:
        raise _refuse(str(text), f"there are more than {MAX_OPTIONS} alternatives")
    if len(set(options)) < len(options):
        raise _refuse(str(text), "an alternative is written twice")
    if any(_degree(option) > MAX_DEGREE for option in options):
        raise _refuse(str(text), f"it multiplies more than {MAX_DEGREE} names")
    return options[0] if len(options) == 1 else Alternatives(tuple(options))


def single(text: str | int) -> Expr:
    """As :func:`parse`, for a place where alternatives mean nothing: they are refused."""
    expr = parse(text)
    if isinstance(expr, Alternatives):
        raise _refuse(str(text), "alternatives mean nothing here")
    return expr


def options(dim: Dim) -> tuple[Expr, ...]:
    """Each way a dim may hold; one where it has no alternatives."""
    return dim.options if isinstance(dim, Alternatives) else (dim,)


def names(expr: Dim) -> frozenset[str]:
    """The symbolic dims an expression uses."""
    if isinstance(expr, Alternatives):
        return frozenset(name for option in expr.options for name in names(option))
    if isinstance(expr, Operation):
        return names(expr.left) | names(expr.right)
    return frozenset({expr.name}) if isinstance(expr, Name) else frozenset()


def _degree(expr: Expr) -> int:
    """How many names one product of the expression has, those it is divided by included."""
    if isinstance(expr, Operation):
        left, right = _degree(expr.left), _degree(expr.right)
        return left + right if expr.op in "*/" else max(left, right)
    return 1 if isinstance(expr, Name) else 0


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


def exact(expr: Expr, dims: Mapping[str, int]) -> Fraction:
    """The value under ``dims``, whatever it is.

    Raises :class:`Refusal` (SHAPE) when a name has no size or something is divided by zero.
    """
    missing = sorted(names(expr) - set(dims))
    if missing:
        raise Refusal(Reason.SHAPE, f"{missing[0]} has no size", subject=str(expr))
    top, bottom = _ratio(expr, dims)
    if bottom[0] == 0:
        raise Refusal(Reason.SHAPE, "divides by zero", subject=str(expr))
    return top[0] / bottom[0]


def evaluate(expr: Dim, dims: Mapping[str, int]) -> int:
    """The size under ``dims``, a positive integer; of alternatives, the first.

    Raises :class:`Refusal` (SHAPE) when a name has no size, or the result is not a positive
    integer (``D/2`` of an odd ``D``, a division by zero) or is over ``MAX_DIM``.
    """
    expr = options(expr)[0]
    value = exact(expr, dims)
    if value.denominator != 1 or value <= 0:
        raise Refusal(Reason.SHAPE, f"{value} is not a size", subject=f"{expr} with {dict(dims)}")
    if value > MAX_DIM:
        raise Refusal(Reason.SHAPE, f"{value} is larger than any dim", subject=str(expr))
    return int(value)


def root(expr: Expr, value: Fraction, known: Mapping[str, int]) -> Fraction | Literal[False] | None:
    """What the one unknown of ``expr`` must be for it to have this value.

    False where nothing makes it so; None where this alone does not determine it: the unknown
    cancels out, or enters more than linearly.
    """
    top, bottom = _ratio(expr, known)
    poly = list(_add(top, _times(bottom, (value,)), -1))
    while poly and poly[-1] == 0:
        poly.pop()
    if len(poly) > 2 or not poly:
        return None
    return False if len(poly) == 1 else -poly[0] / poly[1]
