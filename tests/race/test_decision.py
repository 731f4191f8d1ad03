from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.race.decision import (
    Decision,
    Interval,
    Narrow,
    PastMargin,
    alpha_per_look,
    interval,
    lower_rank,
    median,
)

ALPHA = Fraction(1, 1000)


@settings(deadline=None)
@given(st.integers(1, 200), st.fractions(Fraction(1, 10**6), Fraction(1, 3)))
def test_rank_is_the_largest_that_the_binomial_allows(n, alpha):
    from scipy.stats import binom

    rank = lower_rank(n, alpha)
    slack = 1e-9
    assert rank == 0 or binom.cdf(rank - 1, n, 0.5) <= float(alpha) * (1 + slack)
    assert binom.cdf(rank, n, 0.5) >= float(alpha) * (1 - slack)


def test_ten_blocks_are_the_fewest_that_the_first_look_can_decide_on():
    alpha = alpha_per_look(0.01, 1, 5)
    assert lower_rank(9, alpha) == 0
    assert lower_rank(10, alpha) == 1
    assert interval([1.5] * 9, alpha) is None
    assert interval([1.5] * 10, alpha) == Interval(1.5, 1.5, 1.5)


def test_attempts_and_looks_together_never_spend_more_than_alpha():
    looks = 5
    spent = sum(alpha_per_look(0.01, attempt, looks) * looks for attempt in range(1, 200))
    assert spent < Fraction(0.01)
    assert spent > Fraction(0.01) * Fraction(999, 1000)


def test_each_bound_of_the_interval_fails_no_more_often_than_it_says():
    rng = Random(7)
    alpha = Fraction(1, 20)
    low = high = 0
    for _ in range(2000):
        seen = interval([math.exp(rng.expovariate(1.0) - math.log(2)) for _ in range(25)], alpha)
        low += seen.low > 1.0
        high += seen.high < 1.0
    limit = 2000 * 0.05 + 3 * math.sqrt(2000 * 0.05)
    assert 0 < low <= limit
    assert 0 < high <= limit


def test_median_of_an_even_number_averages_geometrically():
    assert median([0.5, 2.0]) == 1.0
    assert median([3.0, 1.0, 2.0]) == 2.0


@pytest.mark.parametrize(
    ("seen", "decision"),
    [
        (Interval(1.021, 1.05, 1.08), Decision.WIN),
        (Interval(0.98, 1.0, 1.019), Decision.LOSS),
        (Interval(1.02, 1.05, 1.08), Decision.OPEN),
        (Interval(1.0, 1.01, 1.02), Decision.OPEN),
        (Interval(math.nan, math.nan, math.nan), Decision.OPEN),
    ],
)
def test_a_race_is_won_only_past_the_margin(seen, decision):
    assert PastMargin(1.02).ask(seen) is decision


@pytest.mark.parametrize(
    ("seen", "decision"),
    [
        (Interval(0.995, 1.0, 1.005), Decision.WIN),
        (Interval(1.001, 1.004, 1.006), Decision.LOSS),
        (Interval(0.98, 1.0, 1.02), Decision.OPEN),
        (Interval(math.nan, 1.0, math.nan), Decision.OPEN),
    ],
)
def test_the_null_control_asks_for_a_narrow_interval_around_one(seen, decision):
    assert Narrow(1.02).ask(seen) is decision
