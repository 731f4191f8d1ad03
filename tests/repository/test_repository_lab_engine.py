"""The lab's benchmark at a size that takes a second."""

from __future__ import annotations

import importlib
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from flashrt.lab.engine import MemoExecutor, ModelExecutor
from flashrt.lab.model import LoadedArtifact

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch):
    """The benchmark with three prompts, on the one thread that it measures with."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("lab_engine")
    monkeypatch.setattr(module, "PROMPTS", ("the cat sat", "the mat", "that hat"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield module
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def artifact():
    return LoadedArtifact.random(1)


def test_what_runs_again_computes_nothing_and_reuses_positions(bench, artifact):
    executor = MemoExecutor(ModelExecutor.of(artifact))
    asked = bench.workload(30, 2)
    assert [r.arrival_us for r in asked.requests[:3]] == [0, Fraction(700, 3), Fraction(1400, 3)]
    first = bench.run(executor, asked)
    ran = executor.ran
    again = bench.run(executor, asked, trace=True)
    assert executor.ran == ran > 0
    assert (first.events, first.selections) == (again.events, again.selections)
    assert first.events > first.requests == 30
    assert first.reused > 0, "the prompts come again, so a miss every time would measure nothing"
    assert again.per_request > 0 == first.peak


def test_memory_a_request_does_not_grow_with_the_workload(bench, artifact):
    executor = MemoExecutor(ModelExecutor.of(artifact))
    bench.run(executor, bench.workload(30, 2))
    few = bench.run(executor, bench.workload(20, 2), trace=True)
    many = bench.run(executor, bench.workload(200, 2), trace=True)
    assert many.per_request <= few.per_request


def test_every_arm_is_timed_in_every_round(bench, artifact, capsys):
    samples = bench.positions(artifact, 6, 2)
    assert {name: len(taken) for name, taken in samples.seconds.items()} == {
        f"{who}, {how}": 2 for who in ("exact", "plain") for how in ("prompt", "decoding")
    }
    bench.rates("Positions", samples, "positions", "exact, prompt")
    executor = MemoExecutor(ModelExecutor.of(artifact))
    told = bench.events(executor, bench.workload(3, 1), 2)
    bench.rates("Events", told, "events", "memoised")
    out = capsys.readouterr().out
    assert "positions/s" in out
    assert "executed" in out


def test_a_workload_that_does_not_complete_is_no_measurement(bench):
    executor = MemoExecutor(ModelExecutor.of(LoadedArtifact.random(0, context=4)))
    with pytest.raises(RuntimeError, match="did not complete"):
        bench.run(executor, bench.workload(2, 1))
