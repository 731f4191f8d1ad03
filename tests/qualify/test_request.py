"""What may be asked for: cells, budgets, matrices, expectations and floors; the rest is refused."""

from __future__ import annotations

import math
import os

import pytest

from flashrt.qualify.expectation import parse_expectations, parse_floors
from flashrt.qualify.request import MOST_SECONDS, SCHEMES, SHAPES, Budget, CellRequest, named_matrix
from flashrt.release.state import State
from flashrt.scheme.registry import names
from flashrt_runtime.reason import Reason, Refusal


@pytest.mark.parametrize(
    ("text", "rows", "full"),
    [
        ("fp16_weight@decode", 1, "fp16_weight@decode:1"),
        ("fp16_weight@decode:1", 1, "fp16_weight@decode:1"),
        ("w8a16_decode@prefill", 16, "w8a16_decode@prefill:16"),
        ("w8a16_decode@prefill:256", 256, "w8a16_decode@prefill:256"),
    ],
)
def test_a_cell_is_read_and_written_back(text, rows, full):
    cell = CellRequest.parse(text)
    assert (cell.rows, cell.text, cell.context) == (rows, full, 256)
    assert CellRequest.parse(cell.text) == cell
    assert cell.label == f"{cell.phase}/{rows} {cell.scheme}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Reason.CONFLICT),
        ("fp16_weight", Reason.CONFLICT),
        ("@decode", Reason.CONFLICT),
        ("fp16_weight@", Reason.CONFLICT),
        ("fp16_weight@train", Reason.CONFLICT),
        ("fp16_weight@decode:2", Reason.SHAPE),
        ("fp16_weight@decode:0", Reason.SHAPE),
        ("fp16_weight@prefill:-1", Reason.SHAPE),
        ("fp16_weight@prefill:257", Reason.SHAPE),
        ("fp16_weight@prefill:sixteen", Reason.SHAPE),
        ("fp16_weight@prefill:1.5", Reason.SHAPE),
        ("fp16_weight@prefill:١٦", Reason.SHAPE),
        ("fp16_weight@prefill:²", Reason.SHAPE),
    ],
)
def test_other_texts_are_refused(text, reason):
    with pytest.raises(Refusal) as caught:
        CellRequest.parse(text)
    assert caught.value.reason is reason
    assert caught.value.subject == text
    assert caught.value.do


def test_a_context_that_the_rows_do_not_fit_is_refused():
    assert CellRequest.parse("none@prefill:32", context=32).context == 32
    with pytest.raises(Refusal) as caught:
        CellRequest.parse("none@prefill:33", context=32)
    assert caught.value.reason is Reason.SHAPE
    assert "context of 32" in caught.value.what


GOOD = {"processes": 3, "seconds": 2.0, "windows": 2, "positions": 8, "threads": 1}


def test_zero_threads_are_every_core_of_this_process():
    assert Budget.of(**GOOD).threads == 1
    assert Budget.of(**{**GOOD, "threads": 0}).threads == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("processes", 0),
        ("windows", 0),
        ("positions", -1),
        ("seconds", 0.0),
        ("seconds", -1.0),
        ("seconds", math.nan),
        ("seconds", math.inf),
        ("seconds", MOST_SECONDS * 1.01),
        ("threads", -1),
    ],
)
def test_a_budget_that_measures_nothing_is_refused(name, value):
    with pytest.raises(Refusal) as caught:
        Budget.of(**{**GOOD, name: value})
    assert caught.value.reason is Reason.CONFLICT


def test_the_whole_matrix_is_every_scheme_in_every_shape():
    every = named_matrix("all")
    assert set(SCHEMES) == set(names())
    assert len(every) == len(set(every)) == len(SCHEMES) * len(SHAPES)
    assert set(named_matrix("main")) < set(every)


def test_an_unknown_matrix_and_a_short_context_are_refused():
    with pytest.raises(Refusal) as caught:
        named_matrix("most")
    assert caught.value.reason is Reason.CONFLICT
    with pytest.raises(Refusal) as caught:
        named_matrix("all", context=64)
    assert caught.value.reason is Reason.SHAPE


def test_floors_are_numbers_by_metric():
    assert parse_floors(["top1_agreement=0.95", "kl_mean=1e-3"]) == {
        "top1_agreement": 0.95,
        "kl_mean": 0.001,
    }
    assert parse_floors([]) == {}


@pytest.mark.parametrize(
    "texts",
    [
        ["top1_agreement"],
        ["top1_agreement="],
        ["=0.5"],
        ["top1_agreement=high"],
        ["top1_agreement=nan"],
        ["top1_agreement=inf"],
        ["cosine=0.9", "cosine=0.8"],
    ],
)
def test_a_floor_that_is_no_number_or_stated_twice_is_refused(texts):
    with pytest.raises(Refusal) as caught:
        parse_floors(texts)
    assert (caught.value.reason, caught.value.subject) == (Reason.CONFLICT, texts[-1])


CELLS = named_matrix("main")


def test_an_expectation_for_all_is_narrowed_by_a_later_one():
    expected = parse_expectations(
        ["supported_correct", "fp16_weight@decode:1=certified_fast"], CELLS
    )
    first, *others = CELLS
    assert expected[first] is State.CERTIFIED_FAST
    assert {expected[cell] for cell in others} == {State.SUPPORTED_CORRECT}
    assert parse_expectations(["fp16_weight@decode:1=unknown"], CELLS) == {first: State.UNKNOWN}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("fast", "is no state"),
        ("fp16_weight@decode:1=fast", "is no state"),
        ("", "is no state"),
        ("fp16_weight@decode:2=unknown", "no requested cell"),
    ],
)
def test_an_expectation_of_no_state_or_no_cell_is_refused(text, what):
    with pytest.raises(Refusal) as caught:
        parse_expectations([text], CELLS)
    assert caught.value.reason is Reason.CONFLICT
    assert what in caught.value.what


def test_more_threads_than_cores_are_refused():
    cores = len(os.sched_getaffinity(0))
    stated = {"processes": 3, "seconds": 1.0, "windows": 1, "positions": 1}
    assert Budget.of(**stated, threads=0).threads == cores
    with pytest.raises(Refusal, match="threads") as caught:
        Budget.of(**stated, threads=cores + 1)
    assert caught.value.reason is Reason.CONFLICT


def test_an_expectation_may_name_a_cell_as_it_was_typed():
    cells = (CellRequest.parse("fp16_weight@decode"), CellRequest.parse("none@prefill:16"))
    expected = parse_expectations(["fp16_weight@decode=certified_fast"], cells)
    assert expected == {cells[0]: State.CERTIFIED_FAST}
