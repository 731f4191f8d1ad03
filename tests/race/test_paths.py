from __future__ import annotations

import itertools
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.race.decision import Decision, Interval, Narrow, PastMargin
from flashrt.race.paths import boundaries, chances, rank, spendable
from flashrt.race.protocol import CURRENT, Protocol, SignTest

ALPHA = Fraction(1, 200)
BLOCKS = tuple(look // 2 for look in CURRENT.looks)


def crosses(walk, least):
    return any(n in least and sum(walk[:n]) >= least[n] for n in range(1, len(walk) + 1))


@settings(deadline=None, max_examples=60)
@given(
    st.sets(st.integers(1, 11), min_size=1, max_size=5),
    st.fractions(Fraction(1, 500), Fraction(1, 3)),
)
def test_of_all_fair_walks_no_more_than_alpha_ever_cross(looks, alpha):
    """Every walk there is, counted one by one."""
    declared = tuple(sorted(looks))
    least = boundaries(alpha, declared)
    walks = list(itertools.product((0, 1), repeat=declared[-1]))
    crossing = sum(crosses(walk, least) for walk in walks)
    assert Fraction(crossing, len(walks)) <= alpha


def test_one_look_is_the_binomial_test():
    from scipy.stats import binom

    (least,) = boundaries(Fraction(1, 100), (50,)).values()
    assert binom.sf(least - 1, 50, 0.5) <= 0.01 < binom.sf(least - 2, 50, 0.5)


def test_the_chance_under_a_fair_coin_is_what_was_spent_and_nearly_all_of_alpha():
    spent = chances(ALPHA, BLOCKS, 0.5)
    for blocks, chance in spent.items():
        assert chance <= float(spendable(ALPHA, blocks, BLOCKS[-1])) + 1e-12
    assert 0.9 * float(ALPHA) < spent[BLOCKS[-1]] <= float(ALPHA)


def test_what_is_spent_rises_to_alpha_and_never_past_it():
    values = [spendable(ALPHA, n, 320) for n in range(1, 321)]
    assert values == sorted(values)
    assert values[-1] == ALPHA


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8, 1.0])
def test_chances_agree_with_simulated_walks(share):
    least, rng, runs = boundaries(ALPHA, BLOCKS), Random(3), 600
    hits = sum(crosses([rng.random() < share for _ in range(50)], least) for _ in range(runs))
    assert abs(hits / runs - chances(ALPHA, BLOCKS, share)[50]) < 0.07


def test_a_walk_that_may_be_bent_by_its_own_past_crosses_no_more_often():
    """Below one half given the past, whatever the past: the walk of an arm that drifts."""
    least, rng, runs = boundaries(Fraction(1, 20), BLOCKS), Random(5), 1500
    hits = 0
    for _ in range(runs):
        walk = []
        for _ in range(100):
            walk.append(rng.random() < (0.5 if sum(walk[-4:]) % 2 else 0.45))
        hits += crosses(walk, least)
    assert 0 < hits <= runs * 0.05 + 3 * (runs * 0.05) ** 0.5


def test_the_rank_rejects_exactly_the_medians_below_its_value():
    least = boundaries(ALPHA, BLOCKS)[50]
    values = list(range(1, 51))
    low = values[rank(ALPHA, BLOCKS, 50) - 1]
    assert sum(v > low - 0.5 for v in values) >= least
    assert sum(v > low for v in values) < least
    assert rank(ALPHA, BLOCKS, 51) == 0


def test_looking_often_beats_an_equal_share_for_every_look():
    """The reason for the second protocol: a 5 % win at 3 % noise within 100 pairs."""
    share = 0.832  # of blocks past a margin of 1.02 at a true 1.05 and 3 % of noise a block
    now = SignTest(CURRENT, ALPHA, CURRENT.looks)
    first = SignTest(Protocol.EVEN, ALPHA, Protocol.EVEN.looks)
    assert chances(ALPHA, BLOCKS, share)[50] > 0.95
    assert now.interval([1.5] * 10) == Interval(1.5, 1.5, 1.5)
    assert first.interval([1.5] * 10) is None


def test_a_win_must_hold_in_both_halves():
    test = SignTest(CURRENT, ALPHA, CURRENT.looks)
    margin = PastMargin(1.02)
    early = [1.10] * 27 + [1.05] * 12 + [1.0] * 11
    late_only = [1.0] * 13 + [1.10] * 37
    assert test.consult(margin, early) == (test.interval(early), Decision.WIN)
    assert test.interval(late_only).low > 1.02
    assert test.consult(margin, late_only)[1] is Decision.OPEN
    assert SignTest(Protocol.EVEN, ALPHA, (100,)).consult(margin, late_only)[1] is Decision.WIN
    assert test.consult(Narrow(1.2), [0.99, 1.01] * 25)[1] is Decision.WIN


def test_too_few_values_decide_nothing():
    test = SignTest(CURRENT, ALPHA, CURRENT.looks)
    assert test.consult(PastMargin(1.02), [2.0] * 9) == (None, Decision.OPEN)
