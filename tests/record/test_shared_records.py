"""The shared record classes: what receipts hold reads into them and comes out the same."""

import ast
import json
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from pathlib import Path

import pytest

import flashrt.lab.records as lab
import flashrt.record as shared
from flashrt.document.canonical import canonical_bytes
from flashrt.record import (
    Drawing,
    ExecutionBackend,
    ExperimentExecution,
    FrameRecord,
    ModelArtifact,
    WallClock,
    Workload,
    judged_on,
)

ROOT = Path(__file__).parents[2]
RECEIPTS = sorted((ROOT / "receipts" / "qualification").glob("*.json"))
PLANS = sorted((ROOT / "receipts" / "plan").glob("*.json"))
FRAME = FrameRecord("ca01#0", "sha256:" + "1" * 64, 128)
ROBOT = FrameRecord("episode_000001#000002", "sha256:" + "2" * 64, 1, "push", "episode_000001", 0)
DRAWING = Drawing("brown", "text", "corpus", (FRAME,), 128, 0, "stratified", "by document")
ARTIFACT = {
    "name": "tiny",
    "family": "llama",
    "checkpoint_digest": "sha256:" + "3" * 64,
    "architecture_digest": "sha256:" + "4" * 64,
    "dtype": "float32",
    "tokenizer_digest": None,
    "parameters": 7,
    "provenance": "drawn",
}


def bodies():
    return [json.loads(path.read_bytes()) for path in RECEIPTS]


def test_there_are_receipts_to_hold_the_classes_against():
    assert len(RECEIPTS) >= 1
    assert len(PLANS) >= 1


@pytest.mark.parametrize("body", bodies(), ids=[path.stem[:8] for path in RECEIPTS])
def test_what_an_earned_receipt_holds_is_read_and_written_byte_for_byte(body):
    pairs = {
        "execution": ExperimentExecution.from_record(body["execution"]),
        "model_artifact": ModelArtifact.from_record(body["model_artifact"]),
        "workload": Workload.from_record(body["workload"], FrameRecord.from_record),
    }
    for name, read in pairs.items():
        assert canonical_bytes(read.record()) == canonical_bytes(body[name]), name
    assert pairs["execution"].wall.ordered
    assert pairs["execution"].virtual is None
    assert [frame.id for frame in pairs["workload"].requests] == [
        frame["id"] for frame in body["workload"]["frames"]
    ]


@pytest.mark.parametrize("path", PLANS, ids=[path.stem[:8] for path in PLANS])
def test_the_artifact_of_a_plan_is_the_same_class(path):
    held = json.loads(path.read_bytes())["model_artifact"]
    assert canonical_bytes(ModelArtifact.from_record(held).record()) == canonical_bytes(held)


def test_a_backend_has_the_five_fields_and_no_more():
    assert [field.name for field in fields(ExecutionBackend)] == [
        "compute_device",
        "device_state_storage",
        "host_state_storage",
        "library",
        "precision",
    ]
    backend = ExecutionBackend("cpu", "host memory", "host memory", "torch 2", "float32")
    assert ExecutionBackend.from_record(backend.record()) == backend


def test_an_old_artifact_without_an_architecture_says_nothing_of_one():
    old = {key: value for key, value in ARTIFACT.items() if key != "architecture_digest"}
    read = ModelArtifact.from_record(old)
    assert read.architecture_digest is None
    assert read.record() == old
    assert list(ModelArtifact.from_record(ARTIFACT).record()) == list(ARTIFACT)


def test_a_robots_frame_keeps_what_text_does_not_have():
    assert set(FRAME.record()) == {"id", "digest", "positions"}
    assert FrameRecord.from_record(ROBOT.record()) == ROBOT
    assert ROBOT.record()["index"] == 0, "the first frame's index is said, although it is zero"


def test_a_drawn_workload_says_what_was_left_out_only_where_something_was():
    plain = Workload((FRAME,), DRAWING)
    assert "excluded" not in plain.record()
    assert "state_moments" not in plain.record()
    said = replace(DRAWING, excluded=("ca02",), state_moments="sha256:" + "5" * 64)
    full = Workload((ROBOT,), said)
    assert full.record()["excluded"] == ["ca02"]
    assert Workload.from_record(full.record(), FrameRecord.from_record) == full


def test_a_workload_of_requests_keeps_their_order_and_nothing_else():
    workload = Workload((ROBOT, FRAME))
    assert workload.record() == {"requests": [ROBOT.record(), FRAME.record()]}
    assert Workload.from_record(workload.record(), FrameRecord.from_record) == workload
    assert judged_on(workload, [FRAME]) == workload, "nothing is held out of what is not drawn"


def test_frames_that_were_judged_replace_those_that_were_held_out():
    workload = Workload((FRAME,), DRAWING)
    judged = judged_on(workload, [ROBOT, FRAME])
    assert judged.record() == {**workload.record(), "held_out": [ROBOT.record(), FRAME.record()]}


def test_every_shared_record_is_frozen():
    classes = [one for one in vars(shared).values() if is_dataclass(one)]
    assert len(classes) >= 8
    for one in classes:
        assert one.__dataclass_params__.frozen, one
    with pytest.raises(FrozenInstanceError):
        WallClock("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z").ended_at = "later"


@pytest.mark.parametrize(
    "name", ["ModelArtifact", "Workload", "ExecutionBackend", "ExperimentExecution"]
)
def test_there_is_one_class_of_each_shared_name(name):
    assert getattr(lab, name) is getattr(shared, name)
    defined = [
        path
        for folder in ("flashrt", "flashrt_cli", "flashrt_runtime", "tools", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if any(
            isinstance(node, ast.ClassDef) and node.name == name
            for node in ast.walk(ast.parse(path.read_bytes()))
        )
    ]
    assert [path.parent.name for path in defined] == ["record"]
