from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import pytest

from flashrt.race.change import LIMIT, change, memory
from flashrt.race.decision import PastMargin
from flashrt.race.diagnose import diagnose
from flashrt.race.measure import race
from flashrt.race.protocol import Protocol
from flashrt.race.rule import Rule
from flashrt.race.series import Block, Order, Series, Stopped
from flashrt.race.warm import settled


def noise(seed, n, level=1.0, spread=0.02):
    rng = Random(seed)
    return [level * math.exp(rng.gauss(0.0, spread)) for _ in range(n)]


def series(ratios, host=1e7):
    def block(ratio):
        pair = (round(host), round(host / ratio))
        return Block((pair, pair), 0.0, kept=True, order=Order.ABBA)

    return Series(tuple(block(r) for r in ratios), (), Stopped.BUDGET)


def test_a_change_of_level_is_found_where_it_is():
    found = change(noise(1, 40) + noise(2, 40, level=1.05))
    assert found.found
    assert 36 <= found.at <= 44
    assert found.shift == pytest.approx(1.05, abs=0.02)


def test_a_drift_is_a_change_and_noise_with_spikes_is_not():
    drifting = [v * (1 + 0.001 * i) for i, v in enumerate(noise(3, 100))]
    spiked = [v * (5 if i % 17 == 0 else 1) for i, v in enumerate(noise(3, 100))]
    assert change(drifting).found
    assert not change(spiked).found


def test_steady_series_are_hardly_ever_called_unsteady():
    found = sum(change(noise(seed, 60)).found for seed in range(500))
    assert found <= 3


def test_scores_do_not_depend_on_the_scale_or_on_ties():
    values = noise(4, 30)
    assert change(values).score == change([v * 1000 for v in values]).score
    assert change([1.0] * 30).score == 0
    assert change([1.0] * 7) is None
    assert memory([1.0] * 7) is None


def test_memory_is_that_of_neighbours():
    assert memory([1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]) == pytest.approx(5 / 7)
    assert memory([1.0, 2.0] * 10) == -1.0
    assert abs(memory(noise(6, 400))) < 0.15


def test_arms_that_change_against_each_other_are_named():
    found = diagnose(series(noise(7, 30, 1.08) + noise(8, 30, 1.0))).steadiness
    assert found.shifted
    assert found.ratio_change > LIMIT
    assert found.ratio_shift < 0.95
    assert not diagnose(series(noise(9, 60))).steadiness.shifted


def test_the_first_protocol_s_record_is_as_it_was():
    body = diagnose(series(noise(9, 20)), Protocol.EVEN).record()
    assert sorted(body) == ["drift", "foreign_max", "lost", "outliers"]
    assert "shifted" in diagnose(series(noise(9, 20)), Protocol.PATHS).record()


def test_a_series_without_blocks_is_diagnosed():
    body = diagnose(Series((), (), Stopped.NOISE)).record()
    assert (body["drift"], body["shifted"], body["ratio_change"]) == (None, False, None)


def test_rounds_have_settled_when_the_last_took_as_long_as_those_before():
    assert not settled([1.0] * 5)
    assert settled([9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.01])
    assert not settled([2.0, 1.9, 1.8, 1.5, 1.4, 1.3])
    assert not settled([1.0, 1.0, 1.0, 1.2, 1.2, 1.2])
    assert not settled([math.nan] * 6)


def test_an_arm_that_gets_warm_is_waited_for_and_no_cold_run_counts(machine):
    box = machine(2, ratio=1.5, noise=0.0)
    cold = [20]

    def treated():
        if cold[0] > 0:
            cold[0] -= 1
            box.sleep(0.2 * cold[0] / 20)
        box.treated()

    rule = Rule(PastMargin(1.02), Fraction(1, 200), budget_s=1e6)
    found = race({"host": box.host, "treated": treated}, box, box, Random(0), rule)
    assert found.warm.steady
    assert found.record()["warmup"] == {"rounds": found.warm.rounds, "steady": True}
    assert found.warm.rounds > 12
    assert {b for block in found.blocks for _, b in block.pairs} == {13_333_333}


def test_a_machine_that_never_settles_is_raced_and_said_to_be_unsteady(machine):
    box = machine(2, ratio=1.5, noise=0.0)
    scale = [1.0]

    def host():
        scale[0] *= 1.06
        box.sleep(0.02 * scale[0])

    rule = Rule(PastMargin(1.02), Fraction(1, 200), looks=(20,), budget_s=1e9)
    found = race({"host": host, "treated": box.treated}, box, box, Random(0), rule)
    assert found.record()["warmup"] == {"rounds": rule.warm_rounds, "steady": False}


def test_the_warm_up_ends_with_the_budget(machine):
    box = machine(2)
    rule = Rule(PastMargin(1.02), Fraction(1, 200), budget_s=0.01)
    found = race(box.arms, box, box, Random(0), rule)
    assert found.stopped is Stopped.BUDGET
    assert (found.blocks, found.warm.rounds, found.warm.steady) == ((), 0, False)
