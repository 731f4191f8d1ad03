"""The benchmarks' one mechanism: arms in turns, compared within a round."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def interleave() -> ModuleType:
    path = ROOT / "benchmarks" / "interleave.py"
    spec = importlib.util.spec_from_file_location("benchmarks_interleave", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Clock:
    """Time that passes only when an arm says so."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.drift = 1.0
        self.order: list[str] = []

    def arm(self, name: str, seconds: float) -> None:
        self.order.append(name)
        self.seconds += seconds * self.drift
        self.drift *= 1.1

    def now(self) -> float:
        return self.seconds


def test_each_round_runs_each_arm_in_an_order_of_its_own(interleave: ModuleType) -> None:
    clock = Clock()
    arms = {name: lambda name=name: clock.arm(name, 1.0) for name in ("a", "b", "c")}
    interleave.interleave(arms, 12, warmup=0, now=clock.now)
    rounds = [tuple(clock.order[i : i + 3]) for i in range(0, 36, 3)]
    assert all(sorted(names) == ["a", "b", "c"] for names in rounds)
    assert len(set(rounds)) > 2


def test_the_order_is_seeded(interleave: ModuleType) -> None:
    orders = []
    for _ in range(2):
        clock = Clock()
        arms = {name: lambda name=name, clock=clock: clock.arm(name, 1.0) for name in ("a", "b")}
        interleave.interleave(arms, 10, seed=7, now=clock.now)
        orders.append(clock.order)
    assert orders[0] == orders[1]


def test_drift_cancels_in_the_ratio(interleave: ModuleType) -> None:
    """The machine gets 10 % slower with every run; the arm is twice as fast all the same."""
    clock = Clock()
    arms = {"host": lambda: clock.arm("host", 1.0), "treated": lambda: clock.arm("treated", 0.5)}
    samples = interleave.interleave(arms, 40, warmup=0, now=clock.now)
    ratio = samples.ratio("treated", "host")
    assert ratio.low < 0.56
    assert ratio.high > 0.45
    assert 0.45 <= ratio.median <= 0.56


def test_warm_up_is_not_a_sample_and_seconds_are_scaled(interleave: ModuleType) -> None:
    clock = Clock()
    samples = interleave.interleave(
        {"a": lambda: clock.arm("a", 1.0)}, 3, scale=0.5, warmup=2, now=clock.now
    )
    assert len(clock.order) == 2 + 3
    assert samples.seconds["a"] == pytest.approx((0.5 * 1.1**2, 0.5 * 1.1**3, 0.5 * 1.1**4))


def test_a_spread_is_a_median_with_quartiles(interleave: ModuleType) -> None:
    spread = interleave.Spread.of([4.0, 1.0, 3.0, 2.0, 5.0])
    assert (spread.low, spread.median, spread.high) == (2.0, 3.0, 4.0)
    assert str(spread.times(10)) == "30 [20, 40]"
    assert interleave.Spread.of([2.0]).high == 2.0
    with pytest.raises(ValueError, match="no values"):
        interleave.Spread.of([])


def test_a_process_arm_that_fails_is_not_a_sample(interleave: ModuleType) -> None:
    import subprocess

    with pytest.raises(subprocess.CalledProcessError):
        interleave.process([sys.executable, "-c", "raise SystemExit(1)"])()


def test_a_table_shows_each_arm_with_its_ratio(
    interleave: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = interleave.Samples({"host": (1.0, 1.0), "arm": (0.5, 0.5)})
    interleave.show("Title", samples, "ms", "host", note="a note")
    out = capsys.readouterr().out
    assert "Title" in out
    assert "a note" in out
    assert "0.5 [0.5, 0.5]" in out
    assert "500 [500, 500]" in out
