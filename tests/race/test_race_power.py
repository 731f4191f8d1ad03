"""The benchmark of the race: its rules, its simulated machine and its tables."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from flashrt.race.decision import Decision

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.fixture
def promotions(bench):
    machine, rules = bench("race_machine"), bench("race_rules")

    def count(rule, weather, speedup, runs=30):
        (found,) = (w for w in machine.WEATHERS if w.name.startswith(weather))
        calls = [
            rules.RULES[rule](machine.Machine(found, speedup, seed), seed) for seed in range(runs)
        ]
        return sum(call.decision is Decision.WIN for call in calls)

    return count


@pytest.mark.parametrize("weather", ["quiet, 2", "drift, −3", "spikes", "memory", "noisy"])
def test_ours_promotes_no_arm_within_the_margin(promotions, weather):
    assert promotions("flashrt", weather, 1.0) == 0
    assert promotions("flashrt", weather, 1.01) == 0


def test_ours_finds_a_five_percent_win_when_quiet(promotions):
    assert promotions("flashrt", "quiet, 3", 1.05) >= 29
    assert promotions("flashrt, first protocol", "quiet, 2", 1.05) == 30


def test_one_after_the_other_is_fooled_by_drift_and_by_chance(promotions):
    assert promotions("one after the other, medians", "drift, −3", 0.99) >= 15
    assert promotions("one after the other, medians", "quiet, 2", 1.0) >= 5
    assert promotions("… minimum", "quiet, 2", 1.0) >= 5
    assert promotions("… rank-sum .05", "drift, −3", 1.0) >= 20


def test_pairs_without_a_margin_promote_what_the_margin_refuses(promotions):
    assert promotions("ABBA 100, signed rank .01", "quiet, 2", 1.01) >= 15
    assert promotions("ABBA 100, bootstrap, margin", "quiet, 2", 1.01) == 0
    assert promotions("fixed order 5 × 10, medians, margin", "noisy", 1.01) >= 1


def test_tables_count_bound_and_set_lost_races_aside(bench):
    power, rules, real = bench("race_power"), bench("race_rules"), bench("race_real")
    win, loss = rules.Call(Decision.WIN, 40), rules.Call(Decision.LOSS, 60)
    races = [real.RealRace(1.0, loss, lost=False)] * 300
    races += [real.RealRace(1.01, win, lost=True), real.RealRace(1.05, win, lost=False)]
    lines = power.real_table(races).splitlines()
    assert "| 1.00 | 300 | 0 | 0 of 300 (≤ 0.99 %) | 0 | 60 |" in lines
    assert "| 1.01 | 1 | 1 | – | – | – |" in lines
    assert "| 1.05 | 1 | 0 | 1 (≥ 0.050) | 1 | 40 |" in lines
    assert lines[-1].startswith("| ≤ 1.01 | 300 |  | 0 of 300 (≤ 0.99 %)")


def test_a_table_is_written_between_its_marks_and_nowhere_else(bench, monkeypatch, tmp_path):
    power = bench("race_power")
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- race_power real: begin -->\nold\n<!-- race_power real: end -->\nb\n")
    monkeypatch.setattr(power, "DOCS", page)
    power._replace("real", "new")
    assert page.read_text() == (
        "a\n<!-- race_power real: begin -->\nnew\n<!-- race_power real: end -->\nb\n"
    )
    with pytest.raises(SystemExit):
        power._replace("absent", "new")


def test_the_real_arms_differ_by_the_work_that_they_say(bench):
    real = bench("race_real")
    found = real.arms(1.05)
    assert list(found) == ["host", "treated"]
    for arm in found.values():
        arm()
    assert round(real.UNITS * 1.01) / real.UNITS == 1.01


def test_a_log_of_real_races_is_continued_and_counts_whole(bench, tmp_path):
    rules, real = bench("race_rules"), bench("race_real")
    races = [
        real.RealRace(1.0, rules.Call(Decision.LOSS, 60), lost=False),
        real.RealRace(1.01, rules.Call(Decision.OPEN, 0), lost=True),
    ]
    log = tmp_path / "log.jsonl"
    assert real.logged(iter(races), log) == races
    assert real.logged(iter(races[:1]), log) == [*races, races[0]]

    def interrupted():
        yield races[1]
        raise KeyboardInterrupt

    assert real.logged(interrupted(), log) == [*races, races[0], races[1]]
    assert len(log.read_text().splitlines()) == 4
