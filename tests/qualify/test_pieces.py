"""The parts of evidence that need no measurement: cost, environment, frames, merge, result."""

from __future__ import annotations

import copy

import pytest

from flashrt.host.corpus import load_corpus
from flashrt.qualify import environment as machine
from flashrt.qualify.cell import build_cell, cell_digest
from flashrt.qualify.cost import HIGHEST_HZ, peak_flops, step_cost
from flashrt.qualify.environment import environment
from flashrt.qualify.frames import judged_frames, judged_positions
from flashrt.qualify.job import Job
from flashrt.qualify.merge import merge
from flashrt.qualify.request import Budget, CellRequest
from flashrt.qualify.result import FAILED_GATES, CellResult
from flashrt.receipt import build
from flashrt_runtime.reason import Because, Reason, Refusal

DECODE = CellRequest.parse("fp16_weight@decode")
DEVICE = {"class": "cpu", "isa": ["avx2"], "threads": 2}


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, child in value.items():
            yield from leaves(child, (*path, key))
    elif isinstance(value, list) and value:
        for index, child in enumerate(value):
            yield from leaves(child, (*path, index))
    else:
        yield path


@pytest.fixture(scope="module")
def cell(prepared):
    return build_cell(DECODE, prepared.plan(DECODE), dict(DEVICE), {"torch": "2", "gone": None})


def test_a_cell_names_what_was_bound_and_where(cell, prepared):
    assert [s["name"] for s in cell["structures"]] == sorted(
        {s["structure"].split("@")[0] for s in cell["impls"]}
    )
    assert cell["pipeline"]["name"] == "autoregressive_decode_pipeline"
    assert cell["shape"] == {"phase": "decode", "batch": 1, "rows": 1, "context": 256}
    assert cell["precision"]["scheme"] == "fp16_weight"
    assert cell["precision"]["weights"] == "float16"
    bound = [s for s in prepared.plan(DECODE)["seams"] if s["outcome"] == "bind"]
    assert cell["precision"]["seams"] == len(bound) > 0
    assert cell["calibration"] is None
    assert cell["form"] == ["compile"]
    assert cell["binding"]["name"] == "discovered"
    assert {impl["backend"] for impl in cell["impls"]} == {"cpu_fp16"}


def test_a_cell_carries_the_architecture_where_the_plan_has_it(cell, prepared):
    plan = prepared.plan(DECODE)
    named = plan["model_artifact"]["architecture_digest"]
    assert cell["model_artifact"]["architecture_digest"] == named
    old = {k: v for k, v in plan["model_artifact"].items() if k != "architecture_digest"}
    before = build_cell(DECODE, {**plan, "model_artifact": old}, DEVICE, {})
    assert set(before["model_artifact"]) == {"family", "checkpoint_digest", "dtype"}


def test_a_calibrated_cell_names_its_calibration(prepared):
    request = CellRequest.parse("int8_static@decode")
    cell = build_cell(request, prepared.plan(request), DEVICE, {})
    assert prepared.calibration is not None
    assert cell["calibration"] == prepared.calibration.digest


def test_every_fact_of_a_cell_is_part_of_its_digest(cell):
    digests = {cell_digest(cell)}
    paths = list(leaves(cell))
    for path in paths:
        changed = copy.deepcopy(cell)
        parent = changed
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = "another"
        digests.add(cell_digest(changed))
    assert len(digests) == len(paths) + 1
    assert cell_digest(copy.deepcopy(cell)) == cell_digest(cell) == build.cell_digest(cell)


def test_the_least_work_grows_with_rows_and_shrinks_with_the_weights_format(prepared):
    costs = {}
    for scheme in ("fp16_weight", "w8a16_decode"):
        seams = prepared.plan(CellRequest.parse(f"{scheme}@decode"))["seams"]
        blocks = [s for s in seams if s["seam"]["structure"] == "decoder_ffn@1"]
        costs[scheme] = step_cost(blocks, 1, DEVICE)
    half, byte = costs["fp16_weight"], costs["w8a16_decode"]
    assert half["flops"] == byte["flops"] > 0
    assert half["bytes"] > byte["bytes"] > 0
    seams = prepared.plan(DECODE)["seams"]
    one, more = step_cost(seams, 1, DEVICE), step_cost(seams, 16, DEVICE)
    assert more["flops"] == pytest.approx(16 * one["flops"], rel=0.05)
    assert more["bytes"] > one["bytes"]
    assert half["peak_bytes_per_s"] is None


def test_a_seam_that_keeps_the_host_and_an_unknown_format_cost_nothing(prepared):
    seams = copy.deepcopy(prepared.plan(DECODE)["seams"])
    whole = step_cost(seams, 1, DEVICE)
    for seam in seams:
        if seam["impl"]:
            seam["impl"]["backend"] = "not_listed"
    assert step_cost(seams, 1, DEVICE)["bytes"] < whole["bytes"]
    kept = [{**seam, "outcome": "keep_host"} for seam in seams]
    assert (step_cost(kept, 1, DEVICE)["flops"], step_cost(kept, 1, DEVICE)["bytes"]) == (0, 0)


def test_the_peak_is_the_widest_unit_of_every_thread_and_unknown_without_one():
    assert peak_flops(DEVICE) == 128 * HIGHEST_HZ * 2
    assert peak_flops({"isa": ["avx2", "avx512f"], "threads": 1}) == 256 * HIGHEST_HZ
    assert peak_flops({"isa": ["asimd"], "threads": 2}) is None
    assert peak_flops({"isa": None, "threads": 2}) is None


def test_a_fact_that_cannot_be_read_is_none(monkeypatch):
    monkeypatch.setattr(machine, "_read", lambda path: None)
    monkeypatch.setattr(machine, "PACKAGES", ("torch", "no-such-package-here"))
    seen = environment(2)
    assert [seen[key] for key in ("cpu", "governor", "mhz", "driver")] == [None] * 4
    assert seen["threads"] == 2
    assert set(seen["packages"]) == {"torch"}


def test_this_machine_is_described_without_paths():
    seen = environment(1)
    assert seen["memory_bytes"] > 0
    assert seen["cores"] >= 1
    assert not any("/" in str(value) for key, value in seen.items() if key != "cpu")


@pytest.mark.parametrize(
    ("positions", "rows", "context", "judged"),
    [(64, 1, 256, 64), (64, 16, 256, 64), (8, 16, 256, 16), (64, 256, 256, 256), (64, 48, 60, 48)],
)
def test_whole_steps_are_judged_within_the_cache(positions, rows, context, judged):
    assert judged_positions(Budget(positions=positions), rows, context) == judged


def test_frames_to_judge_come_from_held_out_documents_alone(prepared, at_home, source):
    from flashrt.host import load_host

    tokenizer = load_host(source[0]).tokenizer
    given = {
        "frames": source[1],
        "held_out": prepared.held_out,
        "budget": Budget(windows=6, positions=8),
        "rows": 1,
        "context": 256,
    }
    drawn = judged_frames(tokenizer, **given, seed=0)
    assert len(drawn) == 6
    assert {frame.document for frame in drawn} <= set(prepared.held_out)
    assert {frame.token_ids.numel() for frame in drawn} == {9}
    calibrated = {f.id.rpartition("#")[0] for f in prepared.workload.requests}
    assert not calibrated & {frame.document for frame in drawn}
    again = judged_frames(tokenizer, **given, seed=0)
    assert [f.digest for f in again] == [f.digest for f in drawn]
    with pytest.raises(Refusal) as caught:
        judged_frames(tokenizer, **{**given, "held_out": ("nowhere",)}, seed=0)
    assert caught.value.reason is Reason.EMPTY_CORPUS


def test_the_documents_of_a_split_are_all_of_the_corpus(prepared, source, tmp_path):
    corpus = load_corpus(source[1], tmp_path)
    assert 0 < len(prepared.held_out) < len(corpus.documents)
    assert set(prepared.held_out) < {document.id for document in corpus.documents}


def fragments(fake, prepared, cells=(DECODE,), processes=3):
    from flashrt.gate.thresholds import declare
    from flashrt.receipt.spec_gates import catalog_gates

    gates = catalog_gates("autoregressive_decode_pipeline", 1)
    rule = declare(gates).record()
    return [
        fake(
            Job(
                "host",
                "frames",
                tuple(cells),
                {cell.label: prepared.plan(cell) for cell in cells},
                Budget(),
                {cell.label: rule for cell in cells},
                prepared.held_out,
                0,
                process,
            ),
            lambda text: None,
        )[cells[0].label]
        for process in range(processes)
    ]


COST = {"flops": 1.0, "bytes": 1.0, "peak_flops": None, "peak_bytes_per_s": None}


def test_fragments_become_the_evidence_of_one_cell(fake, prepared):
    whole = merge(fragments(fake, prepared), environment(1), COST, "held_out")
    for name in ("empty_control", "path", "processes", "rollback", "poison"):
        assert [part["process"] for part in whole[name]] == [0, 1, 2]
    assert whole["parity"]["label"] == "held_out"
    assert len(whole["parity"]["before"]) == len(whole["parity"]["after"]) == 2
    assert whole["incomplete"] is None
    assert whole["cost"] == COST


def test_a_fragment_that_was_refused_makes_the_evidence_incomplete_and_says_why(fake, prepared):
    parts = fragments(fake, prepared)
    because = Because(Reason.UNCAPTURABLE, "a graph break", "decode")
    kept = ("process", "empty_control", "null", "dtype_hosts", "judged")
    parts[1] = {key: parts[1][key] for key in kept} | {"refused": because.record()}
    whole = merge(parts, environment(1), COST, "held_out")
    assert whole["incomplete"] == "UNCAPTURABLE: a graph break"
    assert [part["process"] for part in whole["processes"]] == [0, 2]
    assert [part["process"] for part in whole["empty_control"]] == [0, 1, 2]


def test_nothing_at_all_is_incomplete():
    whole = merge([], environment(1), COST, "held_out")
    assert whole["incomplete"] == "no process finished"
    assert whole["parity"]["before"] == []
    assert whole["resources"] == {"weight_bytes_host": 0, "weight_bytes_treated": 0}


def result(state, *reasons):
    records = [Because(reason, "detail").record() for reason in reasons]
    return CellResult(DECODE, {"verdict": {"state": state, "reasons": records}})


def test_a_result_without_a_receipt_is_unknown_and_not_measured():
    kept = CellResult(DECODE, None, (Because(Reason.FORM, "no form"),))
    assert (kept.state, kept.gate_failed, kept.measured) == ("unknown", False, False)
    assert [b.reason for b in kept.because] == [Reason.FORM]


@pytest.mark.parametrize("reason", sorted(FAILED_GATES, key=str))
def test_a_failed_gate_is_known_from_its_reason(reason):
    assert result("unknown", reason).gate_failed
    assert not result("supported_correct", reason).gate_failed


@pytest.mark.parametrize("reason", [Reason.INCOMPLETE, Reason.UNCAPTURABLE, Reason.NOISE])
def test_what_could_not_be_judged_was_not_measured(reason):
    assert not result("unknown", reason).measured
    assert not result("unknown", reason).gate_failed


@pytest.mark.parametrize("reason", [Reason.LOSS, Reason.AMBIGUOUS, Reason.BAND_LOW])
def test_slower_is_measured_and_no_failure(reason):
    seen = result("supported_correct", reason)
    assert seen.measured
    assert not seen.gate_failed


def test_a_job_survives_its_trip_to_the_process(prepared):
    job = Job(
        "transformers:host", "text:texts", (DECODE,), {DECODE.label: prepared.plan(DECODE)},
        Budget(windows=2), {DECODE.label: {"margin": 1.02}}, ("a", "b"), 7, 2,
    )  # fmt: skip
    assert Job.from_record(job.record()) == job
