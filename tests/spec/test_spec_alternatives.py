"""Alternatives and constraints: what is solved, what contradicts, what can be read two ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.spec.dims import (
    Alternatives,
    Equation,
    constraint,
    equations,
    evaluate,
    hold,
    names,
    options,
    parse,
    single,
    solve,
)
from flashrt_runtime.reason import Reason, Refusal


def said(**sizes: int) -> list[Equation]:
    """One equation a name; ``__`` stands for what a keyword cannot hold."""
    return [Equation(parse(text), size, f"tensor {text}") for text, size in sizes.items()]


def or_(text: str, size: int, source: str = "scale axis 1") -> Equation:
    return Equation(parse(text), size, source)


def refused(
    given_: Sequence[Equation], rules: Sequence[str] = (), known: Mapping[str, int] | None = None
) -> Refusal:
    with pytest.raises(Refusal) as caught:
        solve(given_, known, constraints=[constraint(r) for r in rules])
    return caught.value


def test_alternatives_parse_and_print() -> None:
    dim = parse("Tp+T | T|1")
    assert isinstance(dim, Alternatives)
    assert [str(o) for o in options(dim)] == ["(Tp+T)", "T", "1"]
    assert parse(str(dim)) == dim
    assert names(dim) == {"T", "Tp"}
    assert evaluate(dim, {"T": 3, "Tp": 4}) == 7


@pytest.mark.parametrize("text", ["|", "T |", "| T", "(T | 1)", "T || 1", "A|B|C|D|E"])
def test_what_is_no_alternative_is_refused(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse(text)
    assert caught.value.reason is Reason.SCHEMA


def test_alternatives_mean_nothing_in_a_constraint() -> None:
    with pytest.raises(Refusal, match="alternatives mean nothing here"):
        single("T | 1")
    with pytest.raises(Refusal, match="alternatives mean nothing here"):
        constraint("R <= T | 1")


@given(st.integers(1, 64), st.booleans())
def test_either_alternative_fits(size: int, broadcast: bool) -> None:
    seen = 1 if broadcast else size
    assert solve([or_("T | 1", seen), *said(T=size)]) == {"T": size}


def test_the_first_alternative_solves_a_dim_that_nothing_else_says() -> None:
    assert solve([or_("T | 1", 5)]) == {"T": 5}
    assert solve([or_("T | 1", 1)]) == {"T": 1}
    assert solve([or_("2*T | 5", 5)]) == {}


def test_a_past_that_is_not_there_has_no_size() -> None:
    assert solve([or_("Tp+T | T", 4), *said(T=4)]) == {"T": 4}
    assert solve([or_("Tp+T | T", 9), *said(T=4)]) == {"T": 4, "Tp": 5}
    error = refused([or_("Tp+T | T", 3, "k axis 1"), *said(T=4)])
    assert "k axis 1 says (Tp+T) = 3 where tensor T says T = 4" in error.what


def test_an_alternative_waits_for_what_the_others_say() -> None:
    assert solve([or_("Dh | R", 8), or_("Dh | R", 4), *said(Dh=8)]) == {"Dh": 8, "R": 4}


def test_no_alternative_fits_and_both_sources_are_named() -> None:
    error = refused([Equation(parse("B"), 2, "x axis 0"), or_("B | 1", 3, "cos axis 0")])
    assert error.reason is Reason.SHAPE
    assert "cos axis 0 says B | 1 = 3" in error.what
    assert "x axis 0 says B = 2" in error.what


def test_two_readings_that_give_other_sizes_are_ambiguous() -> None:
    error = refused([or_("Dh | R", 64)])
    assert error.reason is Reason.AMBIGUOUS
    assert "Dh = 64 or R = 64" in error.what
    assert refused([or_("D | D/2", 8)]).reason is Reason.AMBIGUOUS


def test_two_readings_that_agree_are_not() -> None:
    assert solve([or_("T | 1 | 1*T", 4), or_("T | 2*T/2", 4, "shift axis 1")]) == {"T": 4}


def test_too_many_ways_to_choose_are_refused() -> None:
    assert "ways" in refused([or_(f"A{i} | 1", i + 1) for i in range(30)]).what


def test_partial_leaves_out_what_nothing_determines() -> None:
    packed = [Equation(parse("Hq*Dh"), 64, "q axis 0"), *said(D=16)]
    assert "does not determine" in refused(packed).what
    assert solve(packed, partial=True) == {"D": 16}
    assert solve([or_("Dh | R", 64), *said(D=16)], partial=True) == {"D": 16}
    with pytest.raises(Refusal, match="x axis 0 says D = 17"):
        solve([*packed, Equation(parse("D"), 17, "x axis 0")], partial=True)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 64))
def test_an_equality_is_solved_for_its_one_unknown(group: int, hkv: int, dh: int) -> None:
    rule = constraint("Hq == G*Hkv")
    q, k = Equation(parse("Hq*Dh"), group * hkv * dh, "q"), Equation(parse("Hkv*Dh"), hkv * dh, "k")
    expected = {"Hq": group * hkv, "Hkv": hkv, "Dh": dh, "G": group}
    assert solve([q, k, *said(Dh=dh)], constraints=[rule]) == expected


@pytest.mark.parametrize(
    ("sizes", "rule", "words"),
    [
        ({"Hq": 9, "Hkv": 2}, "Hq == G*Hkv", "tensor Hq says Hq = 9"),
        ({"Hq": 2, "Hkv": 4}, "Hq == G*Hkv", "tensor Hkv says Hkv = 4"),
        ({"R": 64, "Dh": 32}, "R <= Dh", "tensor R says R = 64"),
        ({"Dh": 7}, "2 divides Dh", "tensor Dh says Dh = 7"),
        ({"Dh": 288}, "Dh <= 256", "tensor Dh says Dh = 288"),
        ({"A": 3, "B": 4}, "A*2 == B+3", "tensor B says B = 4"),
    ],
)
def test_a_broken_constraint_names_itself_and_the_sizes(
    sizes: dict[str, int], rule: str, words: str
) -> None:
    error = refused(said(**sizes), [rule])
    assert error.reason is Reason.SHAPE
    assert f"the constraint {rule} does not hold" in error.what
    assert words in error.what
    with pytest.raises(Refusal, match="does not hold"):
        hold([constraint(rule)], {**sizes, "G": 5})


def test_a_constraint_on_what_is_not_there_is_passed() -> None:
    assert solve(said(D=4), constraints=[constraint("R <= Dh")]) == {"D": 4}
    hold([constraint("R <= Dh")], {"D": 4})


def test_a_constraint_chooses_between_alternatives() -> None:
    rules = [constraint("R <= Dh")]
    assert solve([or_("Dh | R", 64), *said(Dh=128)], constraints=rules) == {"Dh": 128, "R": 64}
    assert "does not hold" in refused([or_("Dh | R", 64), *said(Dh=32)], ["R <= Dh"]).what


@pytest.mark.parametrize(
    "text",
    [
        "",
        "R",
        "R < Dh",
        "R = Dh",
        "R >= Dh",
        "A == B == C",
        "<= Dh",
        "Dh <=",
        "dividesDh",
        "R <= D;",
    ],
)
def test_what_is_not_a_constraint_is_refused(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        constraint(text)
    assert caught.value.reason is Reason.SCHEMA


def test_a_constraint_that_divides_by_zero_is_refused() -> None:
    with pytest.raises(Refusal, match="divides by zero"):
        constraint("A/(B-B) <= 3").holds({"A": 1, "B": 2})
    assert not constraint("A-A divides B").holds({"A": 1, "B": 2})


def test_a_name_may_hold_the_word_divides() -> None:
    assert constraint("divides_x <= 3").holds({"divides_x": 3})


def test_ranks_that_differ_are_still_refused() -> None:
    with pytest.raises(Refusal, match=r"cos has shape \[4\]"):
        equations([parse("B | 1"), parse("T")], (4,), "cos")
