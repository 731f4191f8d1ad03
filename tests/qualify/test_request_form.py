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
