"""A cell with chains: planned, bound as units in a real process, judged once, and refused whole."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from flashrt.document.schema import problems
from flashrt.gate.judge import judge
from flashrt.gate.thresholds import declare
from flashrt.qualify.cell import build_cell
from flashrt.qualify.cost import step_cost
from flashrt.qualify.environment import environment
from flashrt.qualify.job import Job
from flashrt.qualify.merge import merge
from flashrt.qualify.processes import run_process
from flashrt.qualify.request import Budget, CellRequest
from flashrt.qualify.run import Run, Stated, now, plan_cells
from flashrt.receipt.spec_gates import catalog_gates
from flashrt.receipt.store import Store
from flashrt_runtime.chain_route import ChainRoute, members_record
from flashrt_runtime.reason import Reason, Refusal

CELL = CellRequest.parse("fp8_static+chains@decode", context=32)
BUDGET = Budget(processes=1, seconds=2.0, windows=2, positions=8, threads=1)
NORM = "model.layers.0.input_layernorm"
QKV = [f"model.layers.0.self_attn.{name}_proj" for name in "kqv"]


@pytest.fixture(scope="module")
def measured(chained, source, tmp_path_factory):
    """The plan, its rule, and the fragment that a process of its own wrote."""
    plan = chained.plan(CELL)
    rule = declare(catalog_gates("autoregressive_decode_pipeline", 1))
    job = Job(
        *source, (CELL,), {CELL.label: plan}, BUDGET, {CELL.label: rule.record()},
        chained.held_out, 0, 0,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("worker"))
        return plan, rule, run_process(job, lambda text: None)[CELL.label]


def test_the_request_reads_and_tells_its_chains():
    assert (CELL.scheme, CELL.chains, CELL.label) == (
        "fp8_static", True, "decode/1 fp8_static+chains",
    )  # fmt: skip
    assert CellRequest.parse(CELL.text, 32) == CELL
    plain = CellRequest.parse("fp8_static@decode", 32)
    assert not plain.chains
    assert plain.label != CELL.label


def test_a_plan_carries_its_chains_there_and_back(chained):
    plan = chained.plan(CELL)
    assert problems(plan, "plan") == []
    routes = [ChainRoute.from_record(one, "plan") for one in plan["chains"]]
    assert [route.record() for route in routes] == plan["chains"]
    assert len(routes) == 4
    first = next(route for route in routes if route.producer == NORM)
    assert sorted(first.readers) == QKV
    bound = {s["seam"]["id"]: s for s in plan["seams"] if s["outcome"] == "bind"}
    assert {bound[name]["scales"]["x"] for name in QKV} == {first.scale}
    assert bound[NORM]["scales"] == {"y": first.scale}
    assert bound[NORM]["impl"]["structure"] == "norm_fused@1"
    assert "chains" not in chained.plan(CellRequest.parse("fp8_static@decode", 32))


def test_chains_are_part_of_the_claim(chained):
    plan, device = chained.plan(CELL), {"class": "cpu"}
    cell = build_cell(CELL, plan, device, {})
    assert cell["precision"]["chains"] == members_record(plan["chains"])
    assert {"producer": NORM, "readers": QKV} in cell["precision"]["chains"]
    assert cell["precision"]["scheme"] == "fp8_static"
    assert "norm_fused" in {spec["name"] for spec in cell["structures"]}
    plain = CellRequest.parse("fp8_static@decode", 32)
    assert "chains" not in build_cell(plain, chained.plan(plain), device, {})["precision"]


def test_a_scheme_without_chains_is_refused_by_name(chained):
    run = Run(chained, Store("unused"), BUDGET, Stated(), now())
    asked = CellRequest.parse("fp16_weight+chains@decode", 32)
    planned, (result,) = plan_cells(run, (asked,))
    assert planned == []
    assert result.because[0].reason is Reason.FORM
    assert "no chain could be negotiated: fp16_weight has no form" in result.because[0].detail


def test_a_process_attaches_every_chain_as_one_unit(measured):
    plan, _, fragment = measured
    assert "refused" not in fragment, fragment.get("refused")
    path = fragment["path"]
    bound = {s["seam"]["id"] for s in plan["seams"] if s["outcome"] == "bind"}
    assert path["chains"] == members_record(plan["chains"])
    assert path["graph_calls"] == dict.fromkeys(bound, 1)
    assert path["expected"][NORM] == "flashrt::norm_fused_cpu_fp8"
    assert fragment["integrity"]["findings"] == []
    assert len(set(fragment["rollback"]["digests"])) == 1


def evidence_of(measured):
    plan, rule, fragment = measured
    cost = step_cost(plan["seams"], 1, {"isa": ["avx2"], "threads": 1})
    return merge([copy.deepcopy(fragment)], environment(1), cost, "held_out"), rule.record()


def test_one_verdict_is_for_the_unit(measured):
    evidence, rule = evidence_of(measured)
    verdict = judge(evidence, rule)
    assert verdict["state"] == "supported_correct", verdict["reasons"]
    del evidence["path"][0]["graph_calls"][QKV[0]]
    refused = judge(evidence, rule)
    assert refused["state"] == "unknown"
    told = [because["detail"] for because in refused["reasons"]]
    assert f"the chain of {NORM} lost {QKV[0]}" in told


def test_chains_that_do_not_read_earn_nothing(measured):
    for chains in ([{"producer": ""}], [{"producer": NORM, "readers": []}], {}):
        evidence, rule = evidence_of(measured)
        evidence["path"][0]["chains"] = chains
        verdict = judge(evidence, rule)
        assert verdict["state"] == "unknown"
        assert {Reason.of(b["code"]) for b in verdict["reasons"]} <= {
            Reason.INCOMPLETE, Reason.NEVER_CALLED,
        }  # fmt: skip


def test_a_norm_that_something_else_reads_is_refused_with_its_reason(chained):
    spoilt = {path: replace(seen, objection="sum reads it") for path, seen in chained.reads.items()}
    with pytest.raises(Refusal) as caught:
        replace(chained, reads=spoilt).plan(CELL)
    assert caught.value.reason is Reason.SHARED_INPUT
    assert "no chain could be negotiated: it emits nothing: sum reads it" in caught.value.what
    one = {path: seen for path, seen in chained.reads.items() if path != NORM}
    kept = replace(chained, reads=one | {NORM: spoilt[NORM]}).plan(CELL)
    assert len(kept["chains"]) == 3
    assert [b["subject"] for b in kept["refused"] if b["detail"].startswith("it emits")] == [NORM]
    assert problems(kept, "plan") == []
