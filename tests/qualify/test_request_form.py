"""A cell's execution form is asked for by name, and only one that a claim may rest on."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from flashrt.qualify.request import CellRequest
from flashrt_cli.main import run
from flashrt_runtime.reason import Reason, Refusal


def test_a_form_is_typed_after_the_shape_and_comes_back() -> None:
    asked = CellRequest.parse("w8a16_decode@prefill:16/compile+cudagraph")
    assert asked.sequence == ("compile", "cudagraph")
    assert CellRequest.parse(asked.text) == asked
    assert CellRequest(**json.loads(json.dumps(asdict(asked)))) == asked
    assert asked.label == "prefill/16 w8a16_decode compile+cudagraph"


def test_the_default_form_leaves_the_words_as_they_were() -> None:
    asked = CellRequest.parse("w8a16_decode@decode")
    assert (asked.sequence, asked.text) == (("compile",), "w8a16_decode@decode:1")
    assert asked.label == "decode/1 w8a16_decode"


@pytest.mark.parametrize("form", ["", "tape", "eager", "cudagraph+compile", "segmented+compile"])
def test_a_form_that_no_claim_can_rest_on_is_refused(form: str) -> None:
    with pytest.raises(Refusal) as caught:
        CellRequest.parse(f"w8a16_decode@decode/{form}")
    assert caught.value.reason is Reason.FORM


@pytest.mark.parametrize("command", ["qualify", "race", "explain"])
def test_the_help_says_that_a_form_may_follow(command: str, capsys: pytest.CaptureFixture) -> None:
    assert run([command, "--help"]) == 0
    assert "[:ROWS][/FORM]" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["qualify"], ["race"], ["race", "--null", "--host", "nobody"]])
@pytest.mark.parametrize("form", ["cudagraph", "compile+cudagraph"])
def test_a_form_that_needs_a_device_is_refused_before_a_host_is_looked_for(
    command: list[str], form: str, capsys: pytest.CaptureFixture
) -> None:
    words = [*command, "--cell", f"w8a16_decode@decode/{form}", "--host", "nobody"]
    assert run(words) == 3
    said = capsys.readouterr().err
    assert "UNCAPTURABLE" in said
    assert "nobody" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["qualify", "--margin", "inf"], "inf is not a finite number"),
        (["qualify", "--margin", "0.5"], "0.5 is below 1.0"),
        (["qualify", "--processes", "2"], "2 are fewer than 3"),
        (["qualify", "--floor", "beauty=1"], "the metrics are"),
        (["race", "--null", "--margin", "inf"], "inf is not a finite number"),
        (["race", "--seconds", "0"], "seconds: a race of 0 s; more than 0"),
        (["race", "--threads", "-1"], "threads: -1 threads; 1 or more"),
    ],
)
def test_what_no_spec_allows_is_refused_before_a_host_is_looked_for(
    words: list[str], said: str, capsys: pytest.CaptureFixture
) -> None:
    assert run([*words, "--host", "nobody"]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "nobody" not in told
