"""The commands ``qualify`` and ``race``: what they refuse, print and exit with."""

from __future__ import annotations

import json

import pytest

from flashrt.qualify import run as running
from flashrt.qualify import solo
from flashrt.qualify.request import Budget, CellRequest
from flashrt.qualify.result import CellResult
from flashrt.qualify.solo import race_once, read_fragment
from flashrt.race.decision import Decision
from flashrt.release.state import State
from flashrt_cli import main
from flashrt_cli.exit_codes import ExitCode, of_reason
from flashrt_cli.render_cells import render
from flashrt_cli.render_race import render as render_race
from flashrt_runtime.reason import Because, Reason, Refusal

DECODE = CellRequest.parse("fp16_weight@decode")


@pytest.fixture
def run(at_home, source, capsys, monkeypatch):
    """Run a command on the tiny host; its exit code, stdout and stderr."""
    monkeypatch.delenv("CI", raising=False)

    def call(*words, host=source[0], frames=source[1]):
        given = [*words, "--host", host, "--frames", frames, "--store", "store"]
        code = main.run(given)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def pretended(fake, monkeypatch):
    """Both commands measure in a process that only pretends."""
    monkeypatch.setattr(running.qualify, "__defaults__", (fake,))
    monkeypatch.setattr(solo.race_once, "__defaults__", (fake,))
    return fake


def test_a_qualification_prints_what_it_earned(run, pretended):
    words = ("qualify", "--cell", DECODE.text, "--cell", "w8a16_decode@prefill:256")
    code, out, err = run(*words, "--threads", "1", "--format", "json")
    assert code == ExitCode.NOT_MEASURED  # one of the two cells was refused
    cells = json.loads(out)["cells"]
    assert [cell["state"] for cell in cells] == ["certified_fast", "unknown"]
    assert cells[1]["reasons"][0]["name"] == "FORM"
    assert cells[1]["receipt"] is None
    assert "process 3 of 3" in err
    code, out, _ = run("qualify", "--cell", DECODE.text, "--threads", "1")
    assert code == 0
    assert "certified_fast" in out
    assert "1 cells, 1 measured, 1 certified fast" in out


def test_what_was_required_or_expected_decides_the_exit_code(run, pretended):
    pretended.ratio = 0.9
    words = ("qualify", "--cell", DECODE.text, "--threads", "1")
    assert run(*words)[0] == 0
    assert run(*words, "--require", "supported_correct")[0] == 0
    code, out, _ = run(*words, "--require", "certified_fast")
    assert code == 1
    assert "supported_correct is below certified_fast" in out
    assert run(*words, "--expect", "supported_correct")[0] == 0
    code, out, _ = run(*words, "--expect", f"{DECODE.text}=certified_fast")
    assert code == 1
    assert "certified_fast was expected" in out


@pytest.mark.parametrize(
    "words",
    [
        ("--cell", "fp16_weight@nowhere"),
        ("--matrix", "most"),
        ("--floor", "top1_agreement"),
        ("--expect", "faster"),
        ("--seconds", "0"),
        ("--threads", "-1"),
        ("--calibration", "sha256:nothing"),
        ("--require", "wonderful"),
    ],
)
def test_input_that_is_refused_exits_2_and_measures_nothing(run, pretended, words):
    cells = () if "--cell" in words or "--matrix" in words else ("--cell", DECODE.text)
    code, _, err = run("qualify", *cells, *words)
    assert code == ExitCode.REFUSED
    assert err.strip()
    assert pretended.jobs == []


@pytest.mark.parametrize("words", [("--margin", "1.0"), ("--processes", "2")])
def test_a_gate_that_would_be_lowered_is_refused_and_measures_nothing(run, pretended, words):
    code, _, err = run("qualify", "--cell", DECODE.text, *words)
    assert code == of_reason(Reason.THRESHOLD) != ExitCode.OK
    assert "FRT038" in err
    assert pretended.jobs == []


def test_an_absent_host_and_an_empty_corpus_are_refused(run, pretended, tmp_path):
    words = ("qualify", "--cell", DECODE.text)
    code, _, err = run(*words, host=f"transformers:{tmp_path}/absent")
    assert code == ExitCode.REFUSED
    assert "FRT051" in err
    code, _, err = run(*words, frames=f"text:{tmp_path}/absent")
    assert code != 0
    assert "FRT031" in err
    assert pretended.jobs == []


def test_an_interrupt_exits_130_with_its_records(run, pretended, tmp_path):
    def interrupt(job):
        raise KeyboardInterrupt

    pretended.before = interrupt
    code, _, err = run("qualify", "--cell", DECODE.text)
    assert code == 130
    assert "interrupted" in err
    assert len(list((tmp_path / "store" / "incomplete").glob("*.json"))) == 1


def test_a_race_is_shown_and_nothing_is_kept(run, pretended, tmp_path):
    code, out, _ = run("race", "--threads", "1")
    assert code == 0
    assert "win after" in out
    assert "no receipt" in out
    assert not (tmp_path / "store" / "qualification").exists()
    code, out, _ = run("race", "--format", "json", "--threads", "1")
    shown = json.loads(out)
    assert shown["decision"] == "win"
    assert shown["race"]["low"] > 1.02
    pretended.ratio = 0.9
    code, out, _ = run("race", "--threads", "1")
    assert code == 0
    assert "loss after" in out


def test_a_race_of_a_cell_that_no_form_serves_names_the_form(run, pretended):
    code, _, err = run("race", "--cell", "w8a16_decode@prefill:256")
    assert code != 0
    assert "form decode serves 1 to 16 rows; the call has 256" in err
    assert pretended.jobs == []


def test_a_race_that_could_not_be_captured_is_open_and_says_why(prepared, fake, factory):
    because = Because(Reason.UNCAPTURABLE, "a graph break", "decode")

    def refuse(fragment):
        fragment["refused"] = because.record()

    fake.change = refuse
    seen = race_once(prepared, DECODE, Budget(processes=1), lambda text: None, fake)
    assert not seen.decided
    assert seen.reasons == (because,)
    output = render_race(DECODE, seen)
    assert any("a graph break" in line for line in output.lines)
    assert output.tables[0].rows[0][1:] == ["–", "–"]


def test_a_race_below_one_look_is_open(factory):
    from flashrt.race.series import Series, Stopped

    gate = factory.thresholds()
    empty = Series((), (), Stopped.NOISE).record()
    seen = read_fragment({"race": empty, "null": empty, "setup_s": {}}, gate)
    assert (seen.decision, seen.race, seen.null, seen.pairs) == (Decision.OPEN, None, None, 0)


def result(state, *reasons, receipt=True):
    because = tuple(Because(reason, "what was seen") for reason in reasons)
    if not receipt:
        return CellResult(DECODE, None, because)
    numbers = {"speedup": None, "parity": None, "dtype_ratio": {}}
    body = {
        "digest": "sha256:0",
        "verdict": {
            "state": state,
            "band": "none",
            "reasons": [b.record() for b in because],
            "statistics": numbers,
        },
        "evidence": {"resources": {"weight_bytes_host": 4e6, "weight_bytes_treated": 2e6}},
        "thresholds": {"alpha": 0.01},
    }
    return CellResult(DECODE, body)


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        (result("unknown", Reason.NONFINITE), {ExitCode.GATE_FAILED}),
        (result("unknown", Reason.INCOMPLETE), {ExitCode.NOT_MEASURED}),
        (result("supported_correct", Reason.NOISE), {ExitCode.NOT_MEASURED}),
        (result("supported_correct", Reason.LOSS), set()),
        (result("certified_fast"), set()),
        (result("unknown", Reason.FORM, receipt=False), {ExitCode.NOT_MEASURED}),
    ],
)
def test_exit_codes_follow_from_states_and_reasons(cell, code):
    output, codes = render([cell], None, {})
    assert set(codes) - {ExitCode.OK} == code
    assert len(output.tables[0].rows[0]) == len(output.tables[0].columns)
    assert bool(output.problems) is bool(code)
    assert all(problem.reason for problem in output.problems)


def test_certified_meets_every_requirement():
    output, codes = render([result("certified_fast")], State.CERTIFIED_FAST, {})
    assert set(codes) <= {ExitCode.OK}
    assert output.data["cells"][0]["verdict"]["state"] == "certified_fast"
    assert output.data["expected_false_promotions"] == 0.01


def test_a_race_of_nothing_bound_is_refused(prepared, fake):
    cell = CellRequest.parse("w8a16_decode@prefill:256")
    with pytest.raises(Refusal) as caught:
        race_once(prepared, cell, Budget(processes=1), lambda text: None, fake)
    assert caught.value.reason is Reason.FORM
