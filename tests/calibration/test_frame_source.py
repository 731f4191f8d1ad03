"""Hosts and frames as a person names them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flashrt.calibration.lerobot import RobotFrame, open_dataset
from flashrt.calibration.source import frames_of, host_of
from flashrt.host.load import Host
from flashrt.host.tiny.pi0 import inputs
from flashrt_runtime.reason import Reason, Refusal

CAMERA, STATE = "observation.image", "observation.state"


@pytest.fixture(scope="module")
def policy() -> Host:
    return host_of("tiny:pi0", Path("unused"))


@pytest.fixture
def texts(host_folder: Path) -> Host:
    return host_of(f"transformers:{host_folder}", Path("unused"))


def frame(**changes: Any) -> RobotFrame:
    values = {
        "id": "episode_000000#000000",
        "task": "Push.",
        "episode": "episode_000000",
        "position": 0,
        "images": {"a": np.full((40, 20, 3), 255, np.uint8)},
        "state": np.array([3.0, 4.0], np.float32),
        "digest": "sha256:" + "ab" * 32,
    }
    return RobotFrame(**(values | changes))


def test_a_robots_frames_go_through_the_policy(policy: Host, sample: Path) -> None:
    reference = f"lerobot:{sample / 'pusht_v30'}"
    drawn = frames_of(reference, policy, samples=4, held_out=2, cache=Path("unused"))
    outputs = [drawn.run(f) for f in drawn.split.calibration]
    assert all(isinstance(out, torch.Tensor) and out.shape == (1, 5, 8) for out in outputs)
    assert all(bool(torch.isfinite(out).all()) for out in outputs)
    again = [drawn.run(f) for f in drawn.split.calibration]
    assert all(torch.equal(a, b) for a, b in zip(outputs, again, strict=True))
    assert len({tuple(out.flatten().tolist()) for out in outputs}) == 4


def test_image_state_and_task_each_reach_the_policy(policy: Host, sample: Path) -> None:
    dataset = open_dataset(sample / "pusht_v30")
    moments = dataset.moments(range(97))
    made = [inputs(policy.model, dataset.frame(i), *moments) for i in (0, 60)]
    for name in ("state", "pixel_values", "noise"):
        assert not torch.equal(made[0][name], made[1][name]), name
    assert made[0]["input_ids"].tolist() != made[1]["input_ids"].tolist()
    state = (dataset.frame(0).state - moments[0]) / moments[1]
    assert made[0]["state"][0, :2].tolist() == pytest.approx(state.tolist(), rel=1e-5)
    assert made[0]["state"][0, 2:].tolist() == [0.0] * 6


def test_an_image_keeps_its_proportions_and_its_colours(policy: Host) -> None:
    mean, std = np.zeros(2), np.ones(2)
    tall = inputs(policy.model, frame(), mean, std)["pixel_values"][0, 0]
    assert tall.shape == (3, 16, 16)
    assert torch.allclose(tall[:, :, :8], torch.ones(3, 16, 8))
    assert torch.equal(tall[:, :, 8:], -torch.ones(3, 16, 8))
    red = np.zeros((16, 16, 3), np.uint8)
    red[..., 0] = 255
    colours = inputs(policy.model, frame(images={"a": red}), mean, std)["pixel_values"][0, 0]
    assert colours.mean(dim=(1, 2)).tolist() == pytest.approx([1.0, -1.0, -1.0])


def test_two_cameras_are_two_images(policy: Host) -> None:
    two = {name: np.zeros((8, 8, 3), np.uint8) for name in ("wrist", "front")}
    made = inputs(policy.model, frame(images=two), np.zeros(2), np.ones(2))
    assert made["pixel_values"].shape == (1, 2, 3, 16, 16)
    assert made["pixel_attention_mask"].shape == (1, 2)
    assert made["input_ids"][0].tolist() == [95] * 8 + [ord(c) - 32 for c in "Push."]
    assert policy.model.sample_actions(**made).shape == (1, 5, 8)


@pytest.mark.parametrize(
    ("changes", "width"),
    [({"images": {}}, 2), ({"task": "x" * 60}, 2), ({"state": np.zeros(9, np.float32)}, 9)],
)
def test_a_frame_that_the_policy_has_no_room_for(
    policy: Host, changes: dict[str, Any], width: int
) -> None:
    with pytest.raises(Refusal) as caught:
        inputs(policy.model, frame(**changes), np.zeros(width), np.ones(width))
    assert caught.value.reason is Reason.SHAPE


def test_text_goes_through_a_language_model(texts: Host, text_folder: Path) -> None:
    reference = f"text:{text_folder}"
    drawn = frames_of(
        reference, texts, window=16, samples=3, held_out=1, exclude=["prose/d1.txt"], cache=Path()
    )
    assert drawn.run(drawn.split.calibration[0]).logits.shape[:2] == (1, 16)
    used = drawn.split.calibration + drawn.split.held_out
    assert "prose/d1.txt" not in {f.document for f in used}
    assert drawn.split.workload()["excluded"] == ["prose/d1.txt"]


def test_a_host_and_frames_of_another_kind(
    policy: Host, texts: Host, text_folder: Path, sample: Path
) -> None:
    for host, reference in (
        (policy, f"text:{text_folder}"),
        (texts, f"lerobot:{sample / 'pusht_v30'}"),
    ):
        with pytest.raises(Refusal) as caught:
            frames_of(reference, host, cache=Path())
        assert caught.value.reason is Reason.HOST


@pytest.mark.parametrize("reference", ["wiki", "lerobot:", "text:", "lerobot", "brown:x"])
def test_what_is_no_source_of_frames(texts: Host, reference: str) -> None:
    with pytest.raises(Refusal) as caught:
        frames_of(reference, texts, cache=Path())
    assert caught.value.reason is Reason.CONFLICT
    assert "lerobot:FOLDER" in str(caught.value)


def test_a_document_that_is_not_there_cannot_be_excluded(texts: Host, text_folder: Path) -> None:
    with pytest.raises(Refusal) as caught:
        frames_of(f"text:{text_folder}", texts, exclude=["prose/d9.txt"], cache=Path())
    assert caught.value.reason is Reason.CONFLICT


def test_a_tiny_host_is_the_same_artifact_every_time(policy: Host) -> None:
    again = host_of("tiny:pi0", Path("unused")).model_artifact
    assert again == policy.model_artifact
    assert again["family"] == "pi0"


@pytest.mark.parametrize("name", ["tiny:siglip", "tiny:nothing"])
def test_a_tiny_host_that_cannot_be_calibrated(name: str) -> None:
    with pytest.raises(Refusal) as caught:
        host_of(name, Path("unused"))
    assert caught.value.reason is Reason.HOST
