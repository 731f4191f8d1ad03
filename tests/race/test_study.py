from __future__ import annotations

from random import Random

import pytest

from flashrt.race.decision import Interval, Narrow, PastMargin, alpha_of_attempt
from flashrt.race.measure import race
from flashrt.race.power import detectable, least_share, lower_bound, upper_bound
from flashrt.race.protocol import CURRENT, Protocol, SignTest
from flashrt.race.rule import Rule
from flashrt.race.series import Block, Order, Series, Stopped
from flashrt.race.study import null_study, summarize
from flashrt_runtime.reason import Reason, Refusal

ALPHA = alpha_of_attempt(0.01, 1)
TEST = SignTest(CURRENT, ALPHA, CURRENT.looks)
RULE = Rule(PastMargin(1.02), ALPHA, budget_s=1e9, warmup=1)


def study(box, races=12, **changes):
    return null_study(box.host, box, box, RULE, races=races, **changes)


def test_none_of_300_bounds_the_rate_below_one_percent_and_none_of_298_does_not():
    assert upper_bound(0, 300) == pytest.approx(1 - 0.05 ** (1 / 300))
    assert upper_bound(0, 299) < 0.01 < upper_bound(0, 298)
    assert upper_bound(300, 300) == 1.0
    assert upper_bound(0, 0) == 1.0


def test_bounds_are_scipy_s_own_intervals():
    from scipy.stats import binomtest

    exact = binomtest(7, 120).proportion_ci(0.90, method="exact")
    assert upper_bound(7, 120) == pytest.approx(exact.high)
    assert lower_bound(7, 120) == pytest.approx(exact.low)
    assert lower_bound(0, 120) == 0.0


def test_more_pairs_need_a_smaller_share_of_blocks():
    within = [least_share(TEST, pairs) for pairs in (40, 100, 640)]
    assert within == sorted(within, reverse=True)
    assert 0.80 < within[1] < 0.83
    assert least_share(TEST, 18) is None


def test_the_first_protocol_has_no_exact_power():
    with pytest.raises(Refusal) as caught:
        least_share(SignTest(Protocol.EVEN, ALPHA, Protocol.EVEN.looks), 100)
    assert caught.value.reason is Reason.THRESHOLD


def test_a_gain_that_is_called_detectable_is_found_by_the_race(machine):
    box = machine(1, noise=0.03)
    gain = study(box).detectable[100]
    found = 0
    for seed in range(100):
        arm = machine(seed + 50, ratio=gain * 1.003, noise=0.03)
        series = race(arm.arms, arm, arm, Random(seed), RULE)
        found += series.stopped is Stopped.DECIDED and len(series.kept) <= 50
    assert 1.03 < gain < 1.06
    assert found >= 88


def test_a_quiet_machine_is_fit_and_says_how_fine_it_sees(machine):
    told = []
    seen = study(machine(2, noise=0.005), races=6, tell=told.append)
    assert told == [1, 2, 3, 4, 5, 6]
    assert (seen.races, seen.promoted, seen.lost, seen.undecided) == (6, 0, 0, 0)
    assert seen.fit
    assert seen.record()["fit"] is True
    assert seen.noise == pytest.approx(0.005, rel=0.4)
    assert seen.record()["detectable"].keys() == {"100", "640"}


def test_a_coarse_machine_sees_less_and_a_noisy_one_is_not_fit(machine):
    fine, coarse = study(machine(3, noise=0.005)), study(machine(3, noise=0.03))
    assert fine.detectable[100] < coarse.detectable[100]
    assert coarse.detectable[640] < coarse.detectable[100]
    assert not study(machine(4, noise=0.2), races=2).fit


def test_races_that_load_took_bound_nothing(machine):
    seen = study(machine(5, foreign=lambda _: 0.5), races=2)
    assert (seen.lost, seen.undecided, seen.bound, seen.fit) == (2, 0, 1.0, False)
    assert (seen.interval, seen.noise, seen.detectable) == (None, None, {100: None, 640: None})


def test_an_arm_that_beats_itself_is_counted_and_a_favoured_seat_is_not_fit():
    def series(ratio, count=10):
        pair = (round(1e7 * ratio), round(1e7))
        blocks = tuple(Block((pair, pair), 0.0, kept=True, order=Order.ABBA) for _ in range(count))
        return Series(blocks, (20,), Stopped.DECIDED)

    seen = summarize([series(1.05), series(1.0), series(1.0)], RULE, 1.02)
    assert seen.promoted == 1
    assert seen.bound > 0.5
    assert not seen.fit
    favoured = summarize([series(1.001)] * 9, RULE, 1.02)
    assert favoured.interval == Interval(1.001, 1.001, 1.001)
    assert (favoured.promoted, favoured.fit) == (0, False)


def test_too_few_ratios_tell_no_gain():
    assert detectable([1.0] * 49, TEST, 1.02, 100) is None
    assert detectable([1.0] * 50, TEST, 1.02, 100) == 1.02
    assert detectable([1.0] * 50, TEST, 1.02, 10) is None


def test_a_study_asks_for_a_win(machine):
    box = machine(6)
    with pytest.raises(TypeError):
        null_study(box.host, box, box, Rule(Narrow(1.02), ALPHA), races=1)
    assert box.calls == []
