from __future__ import annotations

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashrt.document.canonical import seal
from flashrt.gate.judge import judge
from flashrt.receipt.build import cell_digest
from flashrt.receipt.compare import differences
from flashrt.receipt.verify import verify
from flashrt_runtime.reason import Reason


@pytest.fixture(scope="module")
def whole(factory):
    return factory.receipt()


@pytest.fixture
def body(whole):
    return copy.deepcopy(whole)


def resealed(body):
    return seal({**body, "cell_digest": cell_digest(body["cell"])})


def found(body, factory):
    return [(b.reason, b.subject) for b in verify(resealed(body), factory.gates)]


def test_a_spec_that_moved_is_stale(body, factory):
    moved = dict(factory.SPECS)
    moved[("decoder_ffn", 1)] = factory.SpecGates(factory.digest("new"), "cosine", 0.9, 0.8, 1.02)
    reasons = verify(body, lambda name, version: moved.get((name, version)))
    assert [(b.reason, b.subject) for b in reasons] == [
        (Reason.STALE_SPEC, "$.cell.structures[0].spec_digest")
    ]


def test_a_spec_that_is_gone_is_stale(body):
    reasons = verify(body, lambda name, version: None)
    assert {b.reason for b in reasons} == {Reason.STALE_SPEC}
    assert {b.subject for b in reasons} == {"$.cell.structures[0]", "$.cell.pipeline"}


def test_a_spec_with_a_higher_margin_refuses_the_lower_one(body, factory):
    higher = dict(factory.SPECS)
    key = ("autoregressive_decode_pipeline", 1)
    higher[key] = factory.SpecGates(factory.digest("pipeline"), "top1_agreement", 0.95, 0.85, 1.05)
    reasons = verify(body, lambda name, version: higher.get((name, version)))
    assert [(b.reason, b.subject) for b in reasons] == [(Reason.THRESHOLD, "$.thresholds.margin")]


def set_at(path, value):
    def change(body):
        parent = body
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "subject"),
    [
        (set_at(("model_artifact", "family"), "qwen3"), "$.model_artifact.family"),
        (set_at(("model_artifact", "dtype"), "bfloat16"), "$.model_artifact.dtype"),
        (
            set_at(("model_artifact", "architecture_digest"), "sha256:" + "0" * 64),
            "$.model_artifact.architecture_digest",
        ),
        (set_at(("execution", "processes"), 9), "$.execution.processes"),
        (set_at(("execution", "started_at"), "2027-01-01T00:00:00Z"), "$.execution.ended_at"),
        (set_at(("execution", "started_at"), "2027-99-01T00:00:00Z"), "$.execution"),
        (
            set_at(("evidence", "environment", "threads"), 64),
            "$.evidence.environment.threads",
        ),
        (set_at(("cell", "impls", 0, "structure"), "linear_proj@1"), "$.cell.impls"),
        (set_at(("cell", "precision", "seams"), 3), "$.evidence.path[0].expected"),
        (set_at(("supersedes",), "sha256:" + "0" * 64), "$.supersedes"),
        (
            set_at(("workload", "held_out", 0, "id"), "elsewhere"),
            "$.evidence.parity.before[0].frame",
        ),
        (
            set_at(("workload", "held_out", 0, "positions"), 8),
            "$.evidence.parity.before[0].positions",
        ),
        (set_at(("workload", "frames", 0, "id"), "ca01/0"), "$.workload.held_out"),
        (set_at(("workload", "held_out", 1, "id"), "ca01/0"), "$.workload.held_out"),
        (set_at(("evidence", "environment", "cpu"), "Another CPU"), "$.evidence.environment.cpu"),
        (set_at(("cell", "device", "name"), "Another CPU"), "$.evidence.environment.cpu"),
        (
            set_at(("evidence", "environment", "packages", "torch"), "2.0.0"),
            "$.evidence.environment.packages.torch",
        ),
        (set_at(("cell", "software", "flashrt"), "9.9"), "$.execution.tool_version"),
        (
            set_at(("execution", "backend", "library"), "torch 2.0.0"),
            "$.execution.backend.library",
        ),
        (set_at(("evidence", "path", 1, "replays"), 7), "$.evidence.path[1].replays"),
        (
            set_at(("evidence", "dtype_hosts", 0, "dtype"), "float32"),
            "$.evidence.dtype_hosts[0].dtype",
        ),
        (
            set_at(("evidence", "environment", "driver"), "NVRM"),
            "$.evidence.environment.driver",
        ),
        (set_at(("cell", "device", "class"), "cuda"), "$.evidence.environment.driver"),
        (
            set_at(("evidence", "window_check", 3, "windows"), ["token_ids"]),
            "$.evidence.window_check[3].windows",
        ),
    ],
)
def test_facts_that_contradict_each_other_are_named(body, factory, change, subject):
    change(body)
    assert (Reason.CONFLICT, subject) in found(body, factory)


def test_the_same_content_under_another_name_is_still_not_held_out(body, factory):
    body["workload"]["frames"][0]["digest"] = body["workload"]["held_out"][0]["digest"]
    assert (Reason.CONFLICT, "$.workload.held_out") in found(body, factory)


def test_an_attempt_listed_twice_is_named(factory):
    attempt = {
        "digest": factory.digest("a"),
        "state": "unknown",
        "ended_at": "2026-01-30T12:00:00Z",
    }
    other = {**attempt, "state": "supported_correct"}
    body = factory.receipt(factory.thresholds(attempt=3), attempts=[attempt, other])
    assert found(body, factory) == [(Reason.CONFLICT, "$.attempts")]


def attempt(name, ended, factory):
    return {"digest": factory.digest(name), "state": "unknown", "ended_at": ended}


def test_attempts_are_listed_oldest_first_and_ended_before_this_one(factory):
    gate = factory.thresholds(attempt=3)
    old, new = (attempt(day, f"2026-01-{day}T12:00:00Z", factory) for day in ("29", "30"))
    assert found(factory.receipt(gate, attempts=[old, new]), factory) == []
    turned = factory.receipt(gate, attempts=[new, old])
    assert found(turned, factory) == [(Reason.CONFLICT, "$.attempts[0].ended_at")]
    later = attempt("later", "2027-01-01T00:00:00Z", factory)
    ahead = factory.receipt(gate, attempts=[old, later])
    assert found(ahead, factory) == [(Reason.CONFLICT, "$.attempts[1].ended_at")]


def test_an_attempt_that_ended_at_no_time_is_named(factory):
    never = attempt("never", "2026-99-01T00:00:00Z", factory)
    body = factory.receipt(factory.thresholds(attempt=2), attempts=[never])
    assert found(body, factory) == [(Reason.CONFLICT, "$.attempts")]


def test_a_receipt_is_superseded_or_withdrawn_but_not_both(factory):
    old = attempt("old", "2026-01-30T12:00:00Z", factory)
    gate = factory.thresholds(attempt=2)
    both = {"supersedes": old["digest"], "revokes": [old["digest"]]}
    body = factory.receipt(gate, attempts=[old], **both)
    assert found(body, factory) == [(Reason.CONFLICT, "$.revokes")]


def test_another_device_than_the_cpu_says_nothing_about_the_cpu(body, factory):
    body["cell"]["device"] |= {"class": "cuda", "arch": "9.0", "name": "A GPU", "threads": 0}
    body["evidence"]["environment"]["driver"] = "NVRM version"
    for run in body["evidence"]["integrity"]:
        run["looked_for"].append("side_stream")
    assert found(body, factory) == []


def test_on_a_device_a_receipt_that_looked_at_no_side_stream_does_not_hold(body, factory):
    body["cell"]["device"] |= {"class": "cuda", "arch": "9.0", "name": "A GPU", "threads": 0}
    body["evidence"]["environment"]["driver"] = "NVRM version"
    named = found(body, factory)
    assert (Reason.VERDICT, "$.verdict.state") in named
    assert Reason.CONFLICT not in {reason for reason, _ in named}


def test_a_fact_that_could_not_be_read_contradicts_nothing(body, factory):
    body["evidence"]["environment"] |= {"cpu": None, "packages": {}}
    assert found(body, factory) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"scale_bounds": [0.5, 1.4142]}, True),
        ({"scale_bounds": [0.7071, 2.0]}, True),
        ({"scale_bounds": [0.9, 1.1]}, False),
        ({"scale_bounds": None}, True),
        ({"protocol": None, "scale_bounds": None}, False),
        ({"protocol": None}, True),
    ],
)
def test_bounds_of_scale_may_be_narrowed_and_only_the_first_protocol_names_none(
    body, factory, change, named
):
    for name, value in change.items():
        body["thresholds"][name] = value
        if value is None:
            del body["thresholds"][name]
    body["verdict"] = judge(body["evidence"], body["thresholds"])
    subjects = {s for reason, s in found(body, factory) if reason is Reason.THRESHOLD}
    assert ("$.thresholds.scale_bounds" in subjects) is named


def test_a_fraction_of_a_second_is_later_than_none(body, factory):
    body["execution"].update(started_at="2026-01-31T12:00:05Z", ended_at="2026-01-31T12:00:05.5Z")
    assert found(body, factory) == []


def test_a_record_without_a_measurement_verifies_and_cannot_claim(factory):
    record = factory.unmeasured()
    assert verify(record, factory.gates) == []
    forged = copy.deepcopy(record)
    forged["verdict"]["state"] = "certified_fast"
    assert {b.reason for b in verify(seal(forged), factory.gates)} == {Reason.SCHEMA}
    edited = copy.deepcopy(record)
    edited["checks"][0]["outcome"] = "failed"
    assert {b.reason for b in verify(edited, factory.gates)} == {Reason.DIGEST}


def test_the_cell_s_digest_is_checked(body, factory):
    body["cell"]["device"]["arch"] = "aarch64"
    reasons = verify(seal(body), factory.gates)
    assert [(b.reason, b.subject) for b in reasons] == [(Reason.DIGEST, "$.cell_digest")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(value=JSON, key=st.sampled_from(["cell", "evidence", "thresholds", "verdict", "kind"]))
def test_no_json_value_makes_it_raise(value, key, whole, factory):
    assert verify(value, factory.gates)
    if value != whole[key]:
        assert verify({**whole, key: value}, factory.gates)


def test_a_number_beyond_canonical_json_is_a_broken_digest(body, factory):
    body["cell"]["device"]["threads"] = 2**60
    body["evidence"]["environment"]["threads"] = 2**60
    assert Reason.DIGEST in {b.reason for b in verify(body, factory.gates)}


def test_differences_are_found_by_path():
    left = {"a": [1, 2.0, {"b": None}], "c": True, "d": 1}
    right = {"a": [1, 2.0 + 1e-15, {"b": 0}], "c": 1, "e": 1}
    assert list(differences(left, right)) == ["$.a[2].b", "$.c", "$.d", "$.e"]
    assert list(differences([1], [1, 2])) == ["$"]
    assert list(differences(float("nan"), float("nan"))) == ["$"]
    assert list(differences(1, 1.0)) == []


def test_a_process_that_is_a_copy_of_another_is_no_process(body, factory):
    runs = body["evidence"]["processes"]
    runs[1] = {**copy.deepcopy(runs[0]), "process": runs[1]["process"]}
    body["verdict"] = judge(body["evidence"], body["thresholds"])
    assert found(body, factory) == [
        (Reason.CONFLICT, "$.evidence.processes[1].null.pairs"),
        (Reason.CONFLICT, "$.evidence.processes[1].race.pairs"),
    ]
