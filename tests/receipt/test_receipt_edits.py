"""Every leaf of a receipt is edited, one at a time: as the file is, and sealed again."""

from __future__ import annotations

import copy
import re

import pytest

from flashrt.document.canonical import canonical_bytes, seal
from flashrt.receipt.build import cell_digest
from flashrt.receipt.store import Store
from flashrt.receipt.verify import verify
from flashrt_runtime.reason import Reason, Refusal

# Where an edit can pass once a forger seals the file again, because nothing else in the receipt
# need follow from it: only a signature protects these. The verifier's docstring says it in words.
SIGNATURE_ONLY = {
    "$.cell.binding.digest",
    "$.cell.binding.name",
    "$.cell.calibration",
    "$.cell.device.arch",
    "$.cell.device.class",
    "$.cell.device.isa[]",
    "$.cell.device.name",
    "$.cell.form[]",
    "$.cell.impls[].backend",
    "$.cell.impls[].form",
    "$.cell.impls[].version",
    "$.cell.precision.activations",
    "$.cell.precision.scheme",
    "$.cell.precision.weights",
    "$.cell.shape.batch",
    "$.cell.shape.context",
    "$.cell.shape.phase",
    "$.cell.shape.rows",
    "$.cell.software.torch",
    "$.evidence.cost.bytes",
    "$.evidence.cost.flops",
    "$.evidence.cost.peak_bytes_per_s",
    "$.evidence.cost.peak_flops",
    "$.evidence.dtype_hosts[].pairs[]",
    "$.evidence.environment.cores",
    "$.evidence.environment.cpu",
    "$.evidence.environment.driver",
    "$.evidence.environment.governor",
    "$.evidence.environment.kernel",
    "$.evidence.environment.memory_bytes",
    "$.evidence.environment.mhz",
    "$.evidence.environment.packages.torch",
    "$.evidence.environment.python",
    "$.evidence.parity.after[].cosine_min",
    "$.evidence.parity.after[].distinct",
    "$.evidence.parity.after[].kl_max",
    "$.evidence.parity.after[].kl_sum",
    "$.evidence.parity.after[].max_abs",
    "$.evidence.parity.after[].near_ties",
    "$.evidence.parity.after[].nll_host_sum",
    "$.evidence.parity.after[].nll_treated_sum",
    "$.evidence.parity.after[].norm_ratio[]",
    "$.evidence.parity.after[].positions",
    "$.evidence.parity.after[].scale",
    "$.evidence.parity.after[].top1_agree",
    "$.evidence.parity.before[].cosine_min",
    "$.evidence.parity.before[].distinct",
    "$.evidence.parity.before[].kl_max",
    "$.evidence.parity.before[].kl_sum",
    "$.evidence.parity.before[].max_abs",
    "$.evidence.parity.before[].near_ties",
    "$.evidence.parity.before[].nll_host_sum",
    "$.evidence.parity.before[].nll_treated_sum",
    "$.evidence.parity.before[].norm_ratio[]",
    "$.evidence.parity.before[].positions",
    "$.evidence.parity.before[].scale",
    "$.evidence.parity.before[].top1_agree",
    "$.evidence.path[].dispatched",
    "$.evidence.path[].expected",
    "$.evidence.path[].replays",
    "$.evidence.processes[].machine.load_before",
    "$.evidence.processes[].null.blocks[].foreign",
    "$.evidence.processes[].null.blocks[].order",
    "$.evidence.processes[].null.pairs[]",
    "$.evidence.processes[].null.repeat",
    "$.evidence.processes[].race.blocks[].foreign",
    "$.evidence.processes[].race.blocks[].order",
    "$.evidence.processes[].race.pairs[]",
    "$.evidence.processes[].race.repeat",
    "$.evidence.processes[].setup_s.host",
    "$.evidence.processes[].setup_s.treated",
    "$.evidence.resources.weight_bytes_host",
    "$.evidence.resources.weight_bytes_treated",
    "$.execution.backend.compute_device",
    "$.execution.backend.device_state_storage",
    "$.execution.backend.host_state_storage",
    "$.execution.backend.library",
    "$.execution.backend.precision",
    "$.execution.command[]",
    "$.execution.ended_at",
    "$.execution.id",
    "$.execution.started_at",
    "$.execution.tool_version",
    "$.model_artifact.name",
    "$.model_artifact.parameters",
    "$.model_artifact.provenance",
    "$.model_artifact.tokenizer_digest",
    "$.plan",
    "$.attempts[].digest",
    "$.attempts[].ended_at",
    "$.attempts[].state",
    "$.revokes[]",
    "$.supersedes",
    "$.workload.frames[].digest",
    "$.workload.frames[].id",
    "$.workload.frames[].positions",
    "$.workload.held_out[].digest",
    "$.workload.held_out[].positions",
    "$.workload.kind",
    "$.workload.name",
    "$.workload.sampler",
    "$.workload.seed",
    "$.workload.source",
    "$.workload.split",
    "$.workload.window",
}
OTHER = {
    "certified_fast": "supported_correct",
    "supported_correct": "certified_fast",
    "pass": "warn",
    "held_out": "fit_residual",
    "distribution": "value",
    "ABBA": "BAAB",
    "BAAB": "ABBA",
    "decided": "budget",
    "decode": "prefill",
    "compile": "aot",
    "decoder_ffn@1": "decoder_ffn@2",
}


def leaves(value, path=()):
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, list):
        for i, child in enumerate(value):
            yield from leaves(child, (*path, i))
    else:
        yield path


def pattern(path):
    """The path with indices and map keys dropped, e.g. ``$.evidence.path[].expected``."""
    text = "$"
    for part in path:
        if isinstance(part, int):
            text += "[]"
        elif part.startswith("model.layers"):
            break
        else:
            text += f".{part}"
    return re.sub(r"(pairs|norm_ratio|scale)\[\]\[\]", r"\1[]", text)


def edit(value):
    """Another value of the same type, as a careful forger would write it."""
    if isinstance(value, str):
        return edit_text(value)
    if isinstance(value, bool):
        return not value
    if value is None:
        return "sha256:" + "0" * 64
    return value + 1 if isinstance(value, int) else value * 1.0001 + 0.0001


def edit_text(value):
    if value in OTHER:
        return OTHER[value]
    if value.startswith("sha256:"):
        return value[:-1] + ("0" if value[-1] != "0" else "1")
    if re.match(r"\d{4}-", value):
        return value.replace(":1", ":0") if ":1" in value else value.replace("T12", "T11")
    return value + "x"


def sampled(body, every):
    """Every leaf, or every leaf but those of blocks that are like the first ones."""
    for leaf in leaves(body):
        in_series = leaf[:2] == ("evidence", "processes") and leaf[4:5] in (("pairs",), ("blocks",))
        if every or not in_series or (leaf[2] == 0 and leaf[5] < 2):
            yield leaf


FULLY = pytest.mark.parametrize(
    "every", [pytest.param(False, id="sample"), pytest.param(True, marks=pytest.mark.slow)]
)


def changed(body, path, value):
    copied = copy.deepcopy(body)
    parent = copied
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return copied


def at(body, path):
    for key in path:
        body = body[key]
    return body


def resealed(body):
    return seal({**body, "cell_digest": cell_digest(body["cell"])})


@pytest.fixture(scope="module")
def receipt(factory):
    earlier = [
        {
            "digest": factory.digest("earlier"),
            "state": "supported_correct",
            "ended_at": "2026-01-30T12:00:00Z",
        }
    ]
    return factory.receipt(
        factory.thresholds(attempt=2, floors={"kl_mean": 0.1}),
        attempts=earlier,
        supersedes=factory.digest("earlier"),
        revokes=[factory.digest("withdrawn")],
    )


def test_the_receipt_itself_holds(receipt, factory):
    assert verify(receipt, factory.gates) == []
    assert receipt["verdict"]["state"] == "certified_fast"


@FULLY
def test_an_edit_of_any_leaf_is_caught_as_the_file_is(receipt, tmp_path, every):
    store = Store(tmp_path)
    path = store.path("qualification", store.put("qualification", receipt))
    whole = path.read_bytes()
    caught = 0
    tried = list(sampled(receipt, every))
    for leaf in tried:
        edited = changed(receipt, leaf, edit(at(receipt, leaf)))
        path.write_bytes(canonical_bytes(edited))
        with pytest.raises(Refusal) as refusal:
            store.get("qualification", receipt["digest"])
        caught += refusal.value.reason is Reason.DIGEST and str(path) in refusal.value.subject
    path.write_bytes(whole)
    assert store.get("qualification", receipt["digest"]) == receipt
    assert caught == len(tried) > 200


def test_the_verifier_names_a_broken_digest(receipt, factory):
    for leaf in list(leaves(receipt))[::37]:
        found = verify(changed(receipt, leaf, edit(at(receipt, leaf))), factory.gates)
        assert {b.reason for b in found} & {Reason.DIGEST, Reason.SCHEMA}, leaf


@FULLY
def test_an_edit_sealed_again_is_caught_unless_only_a_signature_can(receipt, factory, every):
    slipped = set()
    sealed = {("digest",), ("cell_digest",)}
    for leaf in sampled(receipt, every):
        if leaf in sealed:
            continue
        edited = resealed(changed(receipt, leaf, edit(at(receipt, leaf))))
        if not verify(edited, factory.gates):
            slipped.add(pattern(leaf))
    assert not {p for p in slipped if p.startswith(("$.verdict", "$.thresholds"))}
    assert slipped <= SIGNATURE_ONLY
    assert {"$.cell.device.name", "$.evidence.processes[].race.pairs[]", "$.plan"} <= slipped


def test_a_statistic_edited_and_sealed_again_is_named(receipt, factory):
    path = ("verdict", "statistics", "speedup", "median")
    edited = resealed(changed(receipt, path, 9.9))
    found = verify(edited, factory.gates)
    assert [(b.reason, b.subject) for b in found] == [
        (Reason.STATISTIC, "$.verdict.statistics.speedup.median")
    ]


def test_a_verdict_edited_and_sealed_again_is_named(factory):
    gate = factory.thresholds()
    lost = factory.receipt(gate, evidence=factory.evidence(gate, ratio=0.8))
    forged = changed(lost, ("verdict", "state"), "certified_fast")
    forged["verdict"]["reasons"] = []
    found = verify(resealed(forged), factory.gates)
    assert {b.reason for b in found} == {Reason.VERDICT}
    assert "$.verdict.state" in {b.subject for b in found}


@pytest.mark.parametrize("factor", [0.5, 0.999, 1.001, 2.0])
def test_every_number_of_verdict_and_thresholds_is_caught_either_way(receipt, factory, factor):
    for leaf in leaves(receipt):
        value = at(receipt, leaf)
        if leaf[0] in {"verdict", "thresholds"} and isinstance(value, float) and value:
            edited = resealed(changed(receipt, leaf, value * factor))
            assert verify(edited, factory.gates), leaf


def test_a_lowered_threshold_is_caught_even_with_a_verdict_made_for_it(receipt, factory):
    from flashrt.gate.judge import judge

    lowered = {
        "margin": 1.0001,
        "alpha": 0.2,
        "processes": 1,
        "foreign_limit": 0.9,
        "null_width": 1.5,
        "looks": [20],
        "attempt": 1,
        "metric": "cosine",
        "bands": {"pass": 0.5, "warn": 0.4},
    }
    for name, value in lowered.items():
        edited = changed(receipt, ("thresholds", name), value)
        edited["verdict"] = judge(edited["evidence"], edited["thresholds"])
        found = verify(resealed(edited), factory.gates)
        subjects = {b.subject for b in found if b.reason is Reason.THRESHOLD}
        assert f"$.thresholds.{name}" in subjects, name


def test_a_raised_margin_that_the_evidence_supports_is_a_claim_like_any_other(factory):
    raised = factory.thresholds(margin=1.2)
    assert verify(factory.receipt(raised), factory.gates) == []
