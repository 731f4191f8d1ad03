"""A record is frozen, named by its content, repeatable, and found out where it does not hold."""

import json
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import pytest

from flashrt.document.canonical import canonical_bytes, seal
from flashrt.document.problem import InputError
from flashrt.document.schema import problems
from flashrt.lab.execution import (
    ExecutionStore,
    Verdict,
    execute,
    find_design,
    read_execution,
    reexecute,
    wrong_with,
)
from flashrt.lab.execution import provenance as observed
from flashrt.lab.records import ExecutionRecord, Provenance
from flashrt_runtime.reason import Reason


@pytest.fixture
def kept(hit, tmp_path):
    return ExecutionStore(tmp_path).put(dict(hit.body))


def test_a_record_satisfies_its_schema_and_reads_back_as_it_was(hit, kept):
    assert problems(json.loads(kept.read_bytes()), "lab/experiment_execution") == []
    read = read_execution(kept)
    assert read.digest == hit.digest
    assert replace(read.record, digest=None) == hit.record
    assert read.name == f"transfer_or_recompute/link_100 {hit.digest[7:19]}"


def test_a_record_cannot_be_changed(hit):
    with pytest.raises(FrozenInstanceError):
        hit.record.events = ()
    with pytest.raises(FrozenInstanceError):
        hit.record.events[0].time_us = Fraction(1)


def test_provenance_names_source_python_git_and_backend(hit):
    header = hit.record.execution
    assert header.provenance.source_digest == observed.source_digest()
    assert header.provenance.python.split()[1].startswith("3.")
    assert header.provenance.git is None or len(header.provenance.git) >= 40
    assert "torch" in header.backend.library
    assert header.backend.compute_device.startswith("cpu ")
    assert header.wall is None
    assert header.command == (
        "flashrt", "lab", "run", "transfer_or_recompute", "--arm", "link_100",
    )  # fmt: skip


def test_a_second_execution_without_a_memo_has_the_same_digest(hit, fresh_model):
    done = reexecute(hit, fresh_model)
    assert done.verdict is Verdict.REPRODUCED
    assert done.again.digest == hit.digest
    assert done.same_evidence


def test_other_source_is_another_binding_and_no_corruption(hit, model, monkeypatch):
    there = hit.record.execution.provenance
    changed = Provenance("sha256:" + "0" * 64, there.python, "0" * 40)
    monkeypatch.setattr(observed, "provenance", lambda: changed)
    done = reexecute(hit, model)
    assert done.verdict is Verdict.ANOTHER_BINDING
    assert done.same_evidence
    assert done.again.digest != hit.digest
    assert {one.subject for one in done.bindings} == {
        "provenance.source_digest", "provenance.git",
    }  # fmt: skip
    assert {one.reason for one in done.bindings} == {Reason.SOFTWARE}
    assert wrong_with(hit) == []


@pytest.mark.parametrize(
    ("part", "reason"), [("backend", Reason.DEVICE), ("identity", Reason.CHECKPOINT)]
)
def test_another_backend_or_model_is_another_binding(hit, model, part, reason):
    changes = {
        "backend": replace(model.backend, compute_device="cpu of another kind"),
        "identity": replace(model.identity, checkpoint_digest="sha256:" + "1" * 64),
    }
    other = replace(model, **{part: changes[part]})
    done = reexecute(hit, other)
    assert done.verdict is Verdict.ANOTHER_BINDING
    assert {one.reason for one in done.bindings} == {reason}


def test_a_forged_time_is_not_reproduced_where_the_binding_is_the_same(hit, model, forged):
    last = hit.record.events[-1]
    later = replace(last, time_us=last.time_us + 1)
    clock = replace(hit.record.execution.virtual, ended_us=later.time_us)
    other = forged(
        hit,
        events=(*hit.record.events[:-1], later),
        execution=replace(hit.record.execution, virtual=clock),
    )
    done = reexecute(other, model)
    assert done.verdict is Verdict.NOT_REPRODUCED
    assert done.comparison.parting.number == last.event_id
    assert not done.same_evidence


def test_the_same_setup_differs_in_id_by_what_it_consumes(ran):
    one, other = ran("rotation", "one"), ran("rotation", "two")
    assert one.record.execution.id != other.record.execution.id
    assert one.record.execution.id.startswith("sha256:")


@pytest.mark.parametrize("field", ["events", "ledger", "workload", "outcomes"])
def test_a_changed_file_is_refused_by_its_digest(hit, kept, field):
    body = json.loads(kept.read_bytes())
    body[field] = []
    kept.write_bytes(canonical_bytes(body))
    with pytest.raises(InputError, match="changed after it was sealed") as found:
        read_execution(kept)
    assert found.value.reason is Reason.DIGEST


def test_a_sealed_file_of_another_name_is_refused(kept):
    body = json.loads(kept.read_bytes())
    body["design"] = None
    kept.write_bytes(canonical_bytes(seal(body)))
    with pytest.raises(InputError, match="the file's name is of another content"):
        read_execution(kept)


def test_what_is_no_record_is_refused(tmp_path, hit):
    path = tmp_path / "other.json"
    path.write_bytes(b'{"schema": "flashrt.receipt/1"}')
    with pytest.raises(InputError, match="no execution record of the lab"):
        read_execution(path)
    body = dict(hit.body) | {"more": 1}
    path.write_bytes(canonical_bytes(seal(body)))
    with pytest.raises(InputError, match=r"\$\.more: there is no such field"):
        read_execution(path)
    assert body["schema"] == ExecutionRecord.document


def test_a_model_that_is_not_there_is_not_guessed(tmp_path):
    from flashrt.lab.execution import load_model
    from flashrt_runtime.reason import Refusal

    with pytest.raises(Refusal):
        load_model(tmp_path / "nowhere")


def test_a_run_of_no_design_names_no_arm(model):
    setup = replace(find_design("refusals").setup("no_ceiling"), design=None)
    stored = execute(setup, model)
    assert stored.record.design is None
    assert stored.record.execution.command == ("flashrt", "lab", "run")
    assert wrong_with(stored) == []
