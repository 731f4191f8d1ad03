"""What cells of a group share, and what is each cell's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flashrt.gate.thresholds import declare
from flashrt.qualify import group as groups
from flashrt.qualify.job import Job
from flashrt.qualify.request import Budget, CellRequest
from flashrt.receipt.spec_gates import catalog_gates
from flashrt_runtime.reason import Because, Reason, Refusal

CELLS = [CellRequest.parse(f"{name}@decode") for name in ("none", "fp16_weight", "w8a16_decode")]


@pytest.fixture
def job():
    """Three cells, the last of which was tried before."""
    gates = catalog_gates("autoregressive_decode_pipeline", 1)
    rules = {
        cell.label: declare(gates, attempt=attempt).record()
        for cell, attempt in zip(CELLS, (1, 1, 2), strict=True)
    }
    plans = {cell.label: {"seams": []} for cell in CELLS}
    return Job("host", "frames", tuple(CELLS), plans, Budget(), rules, (), 0, 0)


def test_cells_share_a_null_race_only_under_the_same_rule(job, monkeypatch):
    raced = []

    def itself(job, label, feed, stage):
        raced.append(label)
        return {"of": label}

    monkeypatch.setattr(groups, "against_itself", itself)
    found = groups._nulls(job, CELLS, None, None, lambda text: None)
    assert raced == [CELLS[0].label, CELLS[2].label]
    assert found[CELLS[0].label] == found[CELLS[1].label] == {"of": CELLS[0].label}
    assert found[CELLS[2].label] == {"of": CELLS[2].label}


def group_of(job: Job) -> Any:
    shared: dict[str, Any] = {"empty_control": {}, "judged": [], "dtype_hosts": []}
    nulls = {c.label: SimpleNamespace(series={"n": 1}) for c in CELLS}
    return SimpleNamespace(job=job, shared=shared, nulls=nulls)


@pytest.mark.parametrize("reason", [Reason.UNCAPTURABLE, Reason.SHAPE, Reason.BINDING])
def test_a_refusal_is_this_cells_evidence(job, monkeypatch, reason):
    def refuse(group, cell, say):
        raise Refusal(reason, "cannot be", subject=cell.label)

    monkeypatch.setattr(groups, "_measured", refuse)
    fragment = groups.measure_cell(group_of(job), CELLS[0], lambda text: None)
    assert fragment["refused"] == Because(reason, "cannot be", CELLS[0].label).record()
    assert fragment["null"] == {"n": 1}
    assert (fragment["process"], fragment["judged"]) == (0, [])


def test_a_defect_is_no_evidence(job, monkeypatch):
    def fail(group, cell, say):
        raise ZeroDivisionError

    monkeypatch.setattr(groups, "_measured", fail)
    with pytest.raises(ZeroDivisionError):
        groups.measure_cell(group_of(job), CELLS[0], lambda text: None)


def test_notes_of_many_seams_are_told_once():
    treated = SimpleNamespace(notes={"a": {"isa": "avx2", "x": "1"}, "b": {"isa": "avx512"}})
    assert groups._common_notes(treated) == {"isa": "avx2|avx512", "x": "1"}
