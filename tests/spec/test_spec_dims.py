"""The dims algebra: parsing, solving, and contradictions that name both sources."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.spec import dims
from flashrt.spec.dims import Equation, Name, Number, Operation, evaluate, parse, solve
from flashrt_runtime.reason import Reason, Refusal

T = TypeVar("T")
SIZES = st.fixed_dictionaries({name: st.integers(1, 64) for name in ("D", "Hq", "Hkv")})


def exprs() -> st.SearchStrategy[dims.Expr]:
    leaf = st.one_of(st.integers(0, 9).map(Number), st.sampled_from(["D", "Hq", "Hkv"]).map(Name))
    return st.recursive(
        leaf,
        lambda inner: st.builds(Operation, st.sampled_from("+-*/"), inner, inner),
        max_leaves=8,
    )


def attempt(call: Callable[[], T]) -> T | Refusal:
    """What the call returns, or its refusal."""
    try:
        return call()
    except Refusal as error:
        return error


def value_of(expr: dims.Expr, sizes: dict[str, int]) -> Fraction | None:
    """An independent evaluator; None where something is divided by zero."""
    if isinstance(expr, Number):
        return Fraction(expr.value)
    if isinstance(expr, Name):
        return Fraction(sizes[expr.name])
    a, b = value_of(expr.left, sizes), value_of(expr.right, sizes)
    if a is None or b is None or (expr.op == "/" and b == 0):
        return None
    return {"+": a + b, "-": a - b, "*": a * b}[expr.op] if expr.op != "/" else a / b


@given(exprs())
def test_what_is_printed_parses_to_the_same_expression(expr: dims.Expr) -> None:
    assert parse(str(expr)) == expr


@given(exprs(), SIZES)
def test_evaluation_is_exact_or_refused(expr: dims.Expr, sizes: dict[str, int]) -> None:
    expected = value_of(expr, sizes)
    if expected is None or expected.denominator != 1 or expected <= 0:
        with pytest.raises(Refusal):
            evaluate(expr, sizes)
    else:
        assert evaluate(expr, sizes) == expected


@given(SIZES, st.permutations(["(Hq+2*Hkv)*D", "Hq*D", "D", "3*D"]))
def test_packed_heads_are_solved_in_any_order(sizes: dict[str, int], texts: list[str]) -> None:
    said = [Equation(parse(t), evaluate(parse(t), sizes), t) for t in texts]
    assert solve(said) == sizes


@given(SIZES, st.integers(0, 3), st.integers(1, 5))
def test_one_wrong_size_is_refused(sizes: dict[str, int], which: int, off: int) -> None:
    texts = ["(Hq+2*Hkv)*D", "Hq*D", "D", "3*D"]
    said = [
        Equation(parse(t), evaluate(parse(t), sizes) + (off if i == which else 0), f"tensor {i}")
        for i, t in enumerate(texts)
    ]
    solved = attempt(lambda: solve(said))
    if isinstance(solved, Refusal):
        assert solved.reason is Reason.SHAPE
        assert "tensor" in solved.what
    else:
        # Where the four still agree, they agree on other sizes.
        assert solved != sizes
        assert all(evaluate(e.expr, solved) == e.value for e in said)


@given(st.text(alphabet="DHqk0123456789+-*/() .,_", max_size=40))
def test_any_text_parses_or_is_refused(text: str) -> None:
    expr = attempt(lambda: parse(text))
    if isinstance(expr, Refusal):
        assert expr.reason is Reason.SCHEMA
    else:
        assert parse(str(expr)) == expr


def test_precedence_and_left_association() -> None:
    assert evaluate(parse("2+3*4"), {}) == 14
    assert evaluate(parse("24/4/2"), {}) == 3
    assert evaluate(parse("9-3-2"), {}) == 4
    assert evaluate(parse("(2+3)*4"), {}) == 20


def test_a_contradiction_names_both_sources() -> None:
    with pytest.raises(Refusal) as caught:
        solve([Equation(parse("D"), 16, "norm axis 0"), Equation(parse("3*D"), 47, "qkv axis 0")])
    assert "norm axis 0 says D = 16" in caught.value.what
    assert "qkv axis 0 says" in caught.value.what


def test_half_of_an_odd_size_is_a_contradiction() -> None:
    with pytest.raises(Refusal) as caught:
        solve([Equation(parse("D"), 31, "a"), Equation(parse("D/2"), 15, "b")])
    assert "a says D = 31" in caught.value.what


def test_a_size_that_would_be_a_fraction_is_refused() -> None:
    with pytest.raises(Refusal, match="3/2"):
        solve([Equation(parse("2*D"), 3, "a")])


def test_an_expression_that_nothing_satisfies_is_refused() -> None:
    with pytest.raises(Refusal, match="no D satisfies"):
        solve([Equation(parse("D-D"), 3, "a")])


def test_what_is_not_determined_is_named() -> None:
    with pytest.raises(Refusal, match="does not determine Hkv and Hq"):
        solve([Equation(parse("Hq+Hkv"), 3, "a")])


def test_sizes_given_from_outside_are_a_source() -> None:
    with pytest.raises(Refusal, match="the caller says D = 8"):
        solve([Equation(parse("D"), 9, "a")], {"D": 8})


@pytest.mark.parametrize(
    "text",
    [
        "", "D D", "D+", "(D", "D)", "*D", "-D", "D**2", "D.x", "D[0]", "__import__('os')",
        "D;E", "9" * 30, "D+" * 200 + "D", "(" * 60 + "D" + ")" * 60, "D//2", "D%2", "٣",
    ],
)  # fmt: skip
def test_what_is_not_a_dim_is_refused(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse(text)
    assert caught.value.reason is Reason.SCHEMA


def test_ranks_that_differ_are_refused() -> None:
    with pytest.raises(Refusal, match=r"gate has shape \[4\]"):
        dims.equations([parse("F"), parse("D")], (4,), "gate")


def test_a_name_without_a_size_is_refused() -> None:
    with pytest.raises(Refusal, match="Hq has no size"):
        evaluate(parse("D*Hq"), {"D": 2})
