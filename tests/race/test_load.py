from __future__ import annotations

import pytest

from flashrt.race.clock import MachineClock
from flashrt.race.load import ProcStat, Reading, foreign_share
from flashrt_runtime.reason import Reason, Refusal


def test_what_is_neither_idle_nor_ours_is_foreign():
    before, after = Reading(100.0, 40.0, 10.0), Reading(102.0, 41.5, 11.0)
    assert foreign_share(before, after) == pytest.approx(0.25)


def test_more_of_our_own_time_than_the_kernel_saw_is_no_foreign_load():
    assert foreign_share(Reading(0.0, 0.0, 0.0), Reading(2.0, 1.0, 1.02)) == 0.0


@pytest.mark.parametrize(
    "after",
    [
        Reading(0.0, 0.0, 0.0),
        Reading(-1.0, 0.0, 0.0),
        Reading(float("nan"), 0.0, 0.0),
        Reading(1.0, float("nan"), 0.0),
    ],
)
def test_counters_that_say_nothing_are_full_load(after):
    assert foreign_share(Reading(0.0, 0.0, 0.0), after) == 1.0


def test_stat_is_read_without_counting_guests_twice(tmp_path):
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 20 30 400 50 6 7 8 999 999\ncpu0 1 2 3\n")
    reading = ProcStat(stat).read()
    assert reading.total_s / reading.busy_s == pytest.approx(531 / 81)
    assert reading.own_s >= 0


@pytest.mark.parametrize(
    "text", ["", "cpu 1 2 3\n", "cpu a b c d e f g h\n", "intr 1 2 3 4 5 6 7 8\n"]
)
def test_an_unreadable_stat_is_refused(tmp_path, text):
    stat = tmp_path / "stat"
    stat.write_text(text)
    with pytest.raises(Refusal) as caught:
        ProcStat(stat).read()
    assert caught.value.reason is Reason.NOISE


def test_a_missing_stat_is_refused(tmp_path):
    with pytest.raises(Refusal) as caught:
        ProcStat(tmp_path / "absent").read()
    assert caught.value.reason is Reason.NOISE


def test_the_machine_clock_never_goes_back():
    clock = MachineClock()
    first = clock.now_ns()
    clock.sleep(0)
    assert clock.now_ns() >= first
