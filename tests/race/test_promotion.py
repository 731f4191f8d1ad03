"""How often races promote, simulated with fixed seeds: the error rate is a property, not a hope."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from flashrt.race.certificate import agreed, alpha_of_cell, expected_false_promotions, headline
from flashrt.race.decision import Decision, Interval, Narrow, PastMargin, alpha_of_attempt
from flashrt.race.diagnose import diagnose
from flashrt.race.measure import race
from flashrt.race.null import null_race
from flashrt.race.rule import Rule
from flashrt.race.series import Stopped, ratios

ALPHA = alpha_of_attempt(0.01, 1)
RULE = Rule(PastMargin(1.02), ALPHA, budget_s=1e6, warmup=1)


def decide(series):
    return RULE.consult(ratios(series.observed()))[1]


def promotions(machine, runs, **box):
    wins = 0
    for seed in range(runs):
        simulated = machine(seed, **box)
        series = race(simulated.arms, simulated, simulated, Random(seed), RULE)
        wins += decide(series) is Decision.WIN
    return wins


def test_an_equal_arm_is_not_promoted(machine):
    assert promotions(machine, 150, ratio=1.0) == 0


def test_an_arm_at_the_margin_is_promoted_no_more_often_than_alpha(machine):
    assert promotions(machine, 200, ratio=1.02) <= 4


@pytest.mark.parametrize("ratio", [1.05, 1.10])
def test_a_real_win_is_found(machine, ratio):
    assert promotions(machine, 60, ratio=ratio) >= 58


def test_drift_does_not_promote_an_arm_that_is_slower(machine):
    # 3 % growth per second is far above 3 % over a whole race of this length
    assert promotions(machine, 80, ratio=0.99, drift=0.03) == 0


def test_drift_does_not_hide_a_win_and_is_reported(machine):
    box = machine(3, ratio=1.1, drift=0.03)
    series = race(box.arms, box, box, Random(3), RULE)
    assert decide(series) is Decision.WIN
    found = diagnose(series)
    assert found.drift > 1.005
    assert not found.steadiness.shifted


def test_layout_luck_promotes_one_process_but_hardly_three(machine):
    luck = Random(11)
    single = certified = 0
    for run in range(120):
        decisions = []
        for process in range(3):
            box = machine(run * 3 + process, ratio=2.718281828 ** luck.gauss(0.0, 0.02))
            series = race(box.arms, box, box, Random(run), RULE)
            decisions.append(decide(series))
        single += decisions[0] is Decision.WIN
        certified += agreed(decisions, 3)
    assert single >= 3
    assert certified <= 1


def test_the_null_control_settles_on_a_quiet_machine_and_not_on_a_noisy_one(machine):
    control = Rule(Narrow(1.02), ALPHA, budget_s=1e6, warmup=1)
    quiet, noisy = machine(1, noise=0.01), machine(1, noise=0.10)
    settled = null_race(quiet.host, quiet, quiet, Random(0), control)
    seen, _ = control.consult(ratios(settled.observed()))
    assert settled.stopped is Stopped.DECIDED
    assert seen.low <= 1.0 <= seen.high < seen.low * 1.02
    assert null_race(noisy.host, noisy, noisy, Random(0), control).stopped is Stopped.BUDGET


def test_fewer_than_three_processes_agree_on_nothing():
    win, loss = Decision.WIN, Decision.LOSS
    assert agreed([win, win, win], 3)
    assert not agreed([win, win], 3)
    assert not agreed([win, win, loss], 3)
    assert not agreed([win, win, win, Decision.OPEN], 3)


def test_the_headline_claims_no_more_than_its_worst_process():
    head = headline([Interval(1.3, 1.4, 1.5), Interval(1.1, 1.2, 1.6), Interval(1.2, 1.3, 1.4)])
    assert head == Interval(1.1, 1.3, 1.6)
    assert headline([Interval(1.0, 1.0, 1.0), Interval(1.0, 2.0, 2.0)]).median == 1.5
    assert headline([]) is None


def test_cells_that_are_asked_for_together_share_the_error_rate():
    assert alpha_of_cell(0.01, 4) * 4 == pytest.approx(0.01)
    assert alpha_of_cell(0.01, 1) == alpha_of_cell(0.01, 0) == 0.01


def test_a_matrix_says_what_it_expects_in_false_promotions():
    assert expected_false_promotions([(0.01, 1), (0.01, 1), (0.01, 2)]) == pytest.approx(0.0125)
    assert expected_false_promotions([]) == 0
    assert Fraction(0.01) > sum(Fraction(0.01) / 2**k for k in range(1, 50))


def test_outliers_and_lost_blocks_are_counted(machine):
    box = machine(5, ratio=1.5, foreign=lambda t: 0.5 if t < 0.5 else 0.0)
    series = race(box.arms, box, box, Random(5), RULE)
    found = diagnose(series)
    assert found.lost == len(series.blocks) - len(series.kept) > 0
    assert 0 <= found.outliers < 1
    assert found.foreign_max <= 0.10
