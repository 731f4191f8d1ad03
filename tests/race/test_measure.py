from __future__ import annotations

import itertools
from fractions import Fraction
from random import Random

import pytest

from flashrt.race.decision import PastMargin
from flashrt.race.load import Reading
from flashrt.race.measure import RaceInterrupted, race
from flashrt.race.null import null_race
from flashrt.race.protocol import Protocol
from flashrt.race.rule import Rule
from flashrt.race.series import Order, Stopped
from flashrt_runtime.reason import Reason, Refusal

ALPHA = Fraction(1, 200)


def rule(**changes):
    return Rule(**{"question": PastMargin(1.02), "alpha": ALPHA, **changes})


def run(box, the_rule=None, seed=0, **rest):
    return race(box.arms, box, box, Random(seed), the_rule or rule(), **rest)


def test_a_clear_win_stops_at_the_first_look(machine):
    series = run(machine(1, ratio=1.5))
    assert series.stopped is Stopped.DECIDED
    assert series.looks == (20,)
    assert len(series.blocks) == 10


def test_the_same_seed_gives_the_same_series(machine):
    assert run(machine(1)).record() == run(machine(1)).record()
    assert run(machine(1), seed=5).record() != run(machine(1), seed=6).record()


def test_pairs_keep_the_host_first_in_both_orders(machine):
    series = run(machine(3, ratio=2.0, noise=0.0))
    orders = {block.order for block in series.blocks}
    assert orders == {Order.ABBA, Order.BAAB}
    assert all(a == 2 * b for block in series.blocks for a, b in block.pairs)


def test_every_order_is_a_coin_that_remembers_nothing(machine):
    orders = [
        block.order is Order.ABBA
        for seed in range(12)
        for block in run(machine(3, ratio=1.02), rule(looks=(160,)), seed=seed).blocks
    ]
    again = sum(one is other for one, other in itertools.pairwise(orders)) / (len(orders) - 1)
    assert len(orders) == 960
    assert 0.44 < sum(orders) / len(orders) < 0.56
    assert 0.44 < again < 0.56


def test_the_first_protocol_has_both_orders_equally_often(machine):
    series = run(machine(3), rule(looks=(80,), protocol=Protocol.EVEN))
    assert sum(block.order is Order.ABBA for block in series.blocks) == 20


def test_the_samples_follow_the_recorded_order(machine):
    box = machine(4, ratio=2.0)
    series = run(box, rule(warmup=1))
    letters = {"A": "host", "B": "treated"}
    expected = [letters[c] for block in series.blocks for c in block.order.value]
    assert box.calls[-len(expected) :] == expected


def test_a_short_arm_is_repeated_until_a_block_can_be_read(machine):
    box = machine(5, ratio=2.0, base_ns=100_000)
    series = run(box)
    assert series.repeat > 100
    for block in series.blocks:
        assert sum(a + b for a, b in block.pairs) * series.repeat >= 0.9 * 50e6
    assert series.blocks[0].pairs[0][0] == pytest.approx(100_000, rel=0.05)


def test_the_hook_runs_before_each_sample_and_outside_its_time(machine):
    box = machine(6, ratio=2.0, noise=0.0)
    seen = []

    def before(arm, sample):
        seen.append((arm, sample))
        box.sleep(0.5)

    series = run(box, rule(budget_s=1000.0), before=before)
    assert [sample for _, sample in seen] == list(range(len(seen)))
    assert [arm for arm, _ in seen] == box.calls
    assert all(a == box.base for block in series.blocks for a, _ in block.pairs)


def test_foreign_load_is_recorded_waited_for_and_the_block_repeated_in_its_order(machine):
    box = machine(7, ratio=1.5, foreign=lambda t: 0.4 if 0.3 < t < 2.0 else 0.0)
    series = run(box)
    lost = [i for i, block in enumerate(series.blocks) if not block.kept]
    assert lost
    assert all(series.blocks[i].foreign > 0.1 for i in lost)
    assert all(series.blocks[i + 1].order is series.blocks[i].order for i in lost)
    assert box.slept > 0
    assert series.stopped is Stopped.DECIDED
    assert len(series.kept) == 10


def test_a_machine_that_never_goes_idle_ends_the_race_as_noise(machine):
    series = run(machine(8, ratio=1.5, foreign=lambda _: 0.5), rule(budget_s=1e6))
    assert series.stopped is Stopped.NOISE
    assert series.kept == ()
    assert len(series.blocks) == 41


def test_foreign_load_that_eats_the_seconds_is_noise_too(machine):
    series = run(machine(8, foreign=lambda _: 0.5), rule(budget_s=20.0))
    assert series.stopped is Stopped.NOISE


def test_an_undecided_race_ends_with_its_samples(machine):
    series = run(machine(9, ratio=1.02), rule(looks=(20, 40)))
    assert series.stopped is Stopped.BUDGET
    assert series.looks == (20, 40)
    assert len(series.blocks) == 20


def test_a_budget_of_pairs_ends_it_between_looks(machine):
    series = run(machine(9, ratio=1.02), rule(budget_pairs=30))
    assert (series.stopped, series.looks, len(series.blocks)) == (
        Stopped.BUDGET,
        (20, 24, 28),
        15,
    )


def test_a_budget_of_seconds_ends_it(machine):
    series = run(machine(10, ratio=1.02), rule(budget_s=1.0))
    assert series.stopped is Stopped.BUDGET
    assert 0 < len(series.blocks) < 20


def test_ctrl_c_keeps_what_was_measured(machine):
    box = machine(11)
    arms = box.arms

    def treated():
        if box.calls.count("treated") == 24:
            raise KeyboardInterrupt
        arms["treated"]()

    with pytest.raises(RaceInterrupted) as caught:
        race({"host": arms["host"], "treated": treated}, box, box, Random(0), rule())
    series = caught.value.series
    assert series.stopped is Stopped.INTERRUPTED
    assert 0 < len(series.blocks) < 12
    assert isinstance(caught.value, KeyboardInterrupt)


def test_a_load_that_cannot_be_read_is_never_taken_for_an_idle_machine(machine):
    box = machine(12, ratio=1.5)

    class Blind:
        def read(self):
            return Reading(0.0, 0.0, 0.0)

    series = race(box.arms, box, Blind(), Random(0), rule(budget_s=1e6))
    assert series.stopped is Stopped.NOISE
    assert {block.foreign for block in series.blocks} == {1.0}


def test_a_race_has_two_arms(machine):
    box = machine(13)
    with pytest.raises(Refusal) as caught:
        race({"host": box.host}, box, box, Random(0), rule())
    assert caught.value.reason is Reason.CONFLICT
    assert box.calls == []


@pytest.mark.parametrize("looks", [(), (21,), (40, 20), (20, 20), (0, 20)])
def test_looks_are_ascending_and_even(looks):
    with pytest.raises(Refusal) as caught:
        rule(looks=looks)
    assert caught.value.reason is Reason.THRESHOLD


@pytest.mark.parametrize("name", ["foreign_limit", "block_s", "budget_s", "pause_s"])
@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_limits_are_positive(name, value):
    with pytest.raises(Refusal) as caught:
        rule(**{name: value})
    assert caught.value.subject == name


def test_the_null_race_runs_one_arm_in_both_seats(machine):
    box = machine(14)
    seen = []
    series = null_race(
        box.host, box, box, Random(0), rule(looks=(20,)), before=lambda arm, _: seen.append(arm)
    )
    assert set(box.calls) == {"host"}
    assert set(seen) == {"host", "host_again"}
    assert len(series.blocks) == 10
