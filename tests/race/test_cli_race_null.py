"""``flashrt race --null``: what it prints and exits with, on a simulated machine."""

from __future__ import annotations

import json

import pytest

from flashrt.qualify import group, null_arm
from flashrt.qualify.request import CellRequest
from flashrt.race import clock, load
from flashrt_cli import main
from flashrt_cli.exit_codes import ExitCode

WORDS = ("race", "--null", "--races", "8", "--seconds", "600", "--format")


@pytest.fixture
def run(machine, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*words, **changes):
        box = machine(1, **changes)
        monkeypatch.setattr(clock, "MachineClock", lambda: box)
        monkeypatch.setattr(load, "ProcStat", lambda: box)
        monkeypatch.setattr(null_arm, "null_arm", lambda *_: box.host)
        code = main.run(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_a_quiet_machine_is_fit_and_exits_with_0(run):
    code, out, err = run(*WORDS, "json", noise=0.005)
    body = json.loads(out)
    assert code == ExitCode.OK
    assert (body["fit"], body["races"], body["promoted"], body["host"]) == (True, 8, 0, "matmul")
    assert body["detectable"]["100"] > 1.02
    assert "null races" in err


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"noise": 0.2}, "wider than the margin"),
        ({"foreign": lambda _: 0.5}, "too few blocks without foreign load"),
    ],
)
def test_an_unfit_machine_says_why_and_exits_with_3(run, changes, why):
    code, out, _ = run(*WORDS, "human", **changes)
    assert code == ExitCode.NOT_MEASURED
    assert why in " ".join(out.split())


def test_a_table_names_rates_and_gains(run):
    code, out, _ = run(*WORDS, "human", noise=0.005)
    assert code == ExitCode.OK
    for told in ("0 of 8", "smallest gain found within 100 pairs", "fit to certify"):
        assert told in out


@pytest.mark.parametrize("words", [("--races", "0"), ("--margin", "0.9"), ("--seconds", "0")])
def test_numbers_that_measure_nothing_are_refused(run, words):
    code, _, err = run("race", "--null", *words)
    assert code == ExitCode.REFUSED
    assert err


def test_the_product_runs_and_a_host_s_step_is_captured_and_replayed(monkeypatch):
    import torch

    before = torch.get_num_threads()
    request = CellRequest.parse("fp16_weight@decode")
    replays = []

    class Stage:
        def replay(self):
            replays.append(1)

    class Host:
        model = object()

    def captured(model, rows, context, name, form=("compile",)):
        assert (model, rows, context, form) == (Host.model, 1, 256, request.sequence)
        return group.Captured(Stage(), None, 0.0)

    monkeypatch.setattr("flashrt.host.load_host", lambda reference: Host())
    monkeypatch.setattr(group, "capture_step", captured)
    try:
        null_arm.null_arm(null_arm.MATMUL, request, 1, 0)()
        assert torch.get_num_threads() == 1
        null_arm.null_arm("smollm2", request, 1, 0)()
    finally:
        torch.set_num_threads(before)
    assert replays == [1]
