from __future__ import annotations

import math

import pytest

from flashrt.document.canonical import digest_of
from flashrt.document.problem import InputError
from flashrt.document.schema import problems, require
from flashrt.receipt.build import attempt_record, build_unmeasured, cell_digest
from flashrt_runtime.reason import Because, Reason, Refusal


def test_a_receipt_is_sealed_and_satisfies_its_schema(factory):
    body = factory.receipt()
    require(body, "qualification_receipt")
    assert body["digest"] == digest_of(body)
    assert body["cell_digest"] == cell_digest(body["cell"])


def test_a_receipt_knows_how_a_later_one_lists_it(factory):
    body = factory.receipt()
    assert attempt_record(body) == {
        "digest": body["digest"],
        "state": "certified_fast",
        "ended_at": "2026-01-31T12:10:00.25Z",
    }


@pytest.mark.parametrize("form", [["eager"], [], ["compile", "eager"]])
def test_an_eager_step_earns_no_receipt(factory, form):
    with pytest.raises(Refusal) as caught:
        factory.receipt(cell=factory.cell(form=form))
    assert caught.value.reason is Reason.UNCAPTURABLE


def test_forms_are_ordered_sequences_and_part_of_the_claim(factory):
    both = factory.cell(form=["compile", "cudagraph"])
    assert cell_digest(both) != cell_digest(factory.cell(form=["cudagraph"]))
    assert cell_digest(both) != cell_digest(factory.cell(form=["cudagraph", "compile"]))


def test_the_attempt_follows_the_earlier_ones(factory):
    with pytest.raises(Refusal) as caught:
        factory.receipt(factory.thresholds(attempt=2))
    assert caught.value.reason is Reason.THRESHOLD


def test_evidence_with_nan_is_refused_before_anything_is_kept(factory):
    gate = factory.thresholds()
    evidence = factory.evidence(gate)
    evidence["cost"]["flops"] = math.nan
    with pytest.raises(Refusal) as caught:
        factory.receipt(gate, evidence=evidence)
    assert caught.value.reason is Reason.SCHEMA


def test_a_body_outside_its_schema_is_refused_with_its_path(factory):
    with pytest.raises(InputError) as caught:
        factory.receipt(plan="nonsense", execution=factory.execution(started_at="yesterday"))
    paths = {problem.path for problem in caught.value.problems}
    assert {"$.plan", "$.execution.started_at"} <= paths


def test_backends_have_exactly_five_fields(factory):
    execution = factory.execution()
    execution["backend"]["driver"] = "555.42"
    with pytest.raises(InputError) as caught:
        factory.receipt(execution=execution)
    assert caught.value.problems[0].path == "$.execution.backend"


def test_an_unmeasured_record_needs_a_reason(factory):
    environment = factory.evidence(processes=0)["environment"]
    parts = {
        "kind": "incomplete",
        "cell": factory.cell(),
        "request": {"cell": "decode/1 w8a16_decode"},
        "execution": factory.execution(),
        "environment": environment,
    }
    body = build_unmeasured(reasons=[Because(Reason.INCOMPLETE, "interrupted")], **parts)
    assert body["verdict"]["state"] == "unknown"
    assert body["cell_digest"] == cell_digest(factory.cell())
    with pytest.raises(InputError):
        build_unmeasured(reasons=[], **parts)


def test_a_plan_satisfies_its_schema(factory):
    seam = {
        "id": "model.layers.0.mlp",
        "structure": "decoder_ffn@1",
        "members": {"self": "model.layers.0.mlp"},
        "variant": {"activation": "silu"},
        "dims": {"D": 576},
        "weights": {"gate": "model.layers.0.mlp.gate_proj.weight"},
        "points": {"x_after_norm": {"module": "model.layers.0.mlp", "capture": "input"}},
    }
    kept = Because(Reason.KEPT_HOST, "an outlier", seam["id"]).record()
    bound = {"structure": "decoder_ffn@1", "backend": "cpu_int8", "form": "static"}
    plan = {
        "schema": "flashrt.plan/1",
        "digest": factory.digest("plan"),
        "scheme": "int8_static",
        "binding": {"name": "smollm2", "digest": factory.digest("binding")},
        "binding_manifest": {},
        "calibration": None,
        "model_artifact": factory.receipt()["model_artifact"],
        "seams": [
            {"seam": seam, "outcome": "bind", "impl": bound, "scales": {"x": 0.5}, "reason": None},
            {"seam": seam, "outcome": "keep_host", "impl": None, "scales": {}, "reason": kept},
        ],
        "refused": [],
    }
    assert problems(plan, "plan") == []
    plan["seams"][0]["scales"]["x"] = 0
    assert [p.path for p in problems(plan, "plan")] == ["$.seams[0].scales.x"]


@pytest.mark.parametrize("name", ["records", "qualification_receipt", "plan", "preflight_record"])
def test_schemas_are_closed_and_described(name):
    import json

    from flashrt.document.schema import schema_text

    def walk(node, path):
        if isinstance(node, dict):
            if node.get("type") == "object" and "properties" in node:
                assert node["additionalProperties"] is False, path
                for key, child in node["properties"].items():
                    assert child.get("description"), f"{path}.{key}"
            for key, child in node.items():
                walk(child, f"{path}.{key}")
        elif isinstance(node, list):
            for i, child in enumerate(node):
                walk(child, f"{path}[{i}]")

    body = json.loads(schema_text(name))
    walk(body, "$")
    assert body["$id"] == f"urn:flashrt:schema:{name}:1"
