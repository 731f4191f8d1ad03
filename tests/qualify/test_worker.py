"""One real measuring process on the tiny host: the shape of its evidence, and no exception."""

from __future__ import annotations

import pytest

from flashrt.gate.judge import judge
from flashrt.gate.thresholds import declare
from flashrt.qualify.cost import step_cost
from flashrt.qualify.environment import environment
from flashrt.qualify.job import Job
from flashrt.qualify.merge import merge
from flashrt.qualify.processes import run_process
from flashrt.qualify.request import Budget, CellRequest
from flashrt.receipt.spec_gates import catalog_gates
from flashrt_runtime.reason import Reason

CELL = CellRequest.parse("fp16_weight@decode", context=32)
BUDGET = Budget(processes=1, seconds=2.0, windows=2, positions=8, threads=1)


@pytest.fixture(scope="module")
def measured(prepared, source, tmp_path_factory):
    """A plan, its rule, and the fragment that a process of its own wrote."""
    plan = prepared.plan(CELL)
    gates = catalog_gates("autoregressive_decode_pipeline", 1)
    rule = declare(gates)
    job = Job(
        *source, (CELL,), {CELL.label: plan}, BUDGET, {CELL.label: rule.record()},
        prepared.held_out, 0, 0,
    )  # fmt: skip
    told = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("worker"))
        evidence = run_process(job, told.append)
    return plan, rule, evidence[CELL.label], told


def test_the_path_runs_every_bound_seam_exactly_once(measured):
    plan, _, fragment, told = measured
    assert "refused" not in fragment, fragment.get("refused")
    bound = {s["seam"]["id"] for s in plan["seams"] if s["outcome"] == "bind"}
    assert fragment["path"]["graph_calls"] == dict.fromkeys(bound, 1)
    assert set(fragment["path"]["expected"]) == bound
    assert fragment["path"]["replays"] > 0
    assert fragment["path"]["fallbacks"] == 0
    assert any(text.startswith("race ") for text in told)


def test_the_controls_hold(measured):
    fragment = measured[2]
    assert len(set(fragment["empty_control"]["digests"])) == 1
    assert len(set(fragment["rollback"]["digests"])) == 1
    assert fragment["poison"] == {
        "process": 0,
        "outputs_rewritten": True,
        "inputs_honoured": True,
    }


def test_both_arms_follow_every_window_and_read_nothing_else(measured):
    fragment = measured[2]
    assert [check["arm"] for check in fragment["window_check"]] == ["host", "treated"]
    for check in fragment["window_check"]:
        assert check["refused"] is None
        assert check["process"] == 0
        assert (check["windows"], check["held"]) == (["token_ids", "positions"], [])
        assert check["unchanged"] == []


def test_parity_is_finite_on_frames_that_were_held_out(measured, prepared):
    fragment = measured[2]
    judged = {frame["id"] for frame in fragment["judged"]}
    assert len(judged) == BUDGET.windows
    assert {name.rpartition("#")[0] for name in judged} <= set(prepared.held_out)
    for when in ("parity_before", "parity_after"):
        assert {window["frame"] for window in fragment[when]} == judged
        for window in fragment[when]:
            assert window["nonfinite"] == 0
            assert window["positions"] == BUDGET.positions
            assert 0.99 < window["scale"] < 1.01
    assert fragment["parity_before"] == fragment["parity_after"]


def test_one_process_is_judged_and_certifies_nothing(measured):
    plan, rule, fragment, _ = measured
    cost = step_cost(plan["seams"], 1, {"isa": ["avx2"], "threads": 1})
    evidence = merge([fragment], environment(1), cost, "held_out")
    verdict = judge(evidence, rule.record())
    assert evidence["window_check"] == fragment["window_check"]
    assert verdict["state"] == "supported_correct", verdict["reasons"]
    reasons = {Reason.of(because["code"]) for because in verdict["reasons"]}
    assert reasons
    assert reasons <= {Reason.INCOMPLETE, Reason.NOISE, Reason.AMBIGUOUS, Reason.LOSS}
    assert verdict["statistics"]["parity"]["label"] == "held_out"
    assert (
        fragment["resources"]["weight_bytes_treated"] < (fragment["resources"]["weight_bytes_host"])
    )
    assert fragment["race"]["unit"] == fragment["null"]["unit"] == "ns"
