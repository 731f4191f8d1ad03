"""The pipelines of a fixed-step loop: what a binding must name, and what they do not share."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashrt.document.problem import InputError
from flashrt.spec import load, load_reference
from flashrt.spec.model import Kind, Presence
from flashrt.spec.reader import read
from flashrt_runtime.reason import Reason, Refusal

STAGES = {
    "vla_tick_pipeline": {
        "condition": ("required", "per_observation"),
        "init": ("required", "per_tick"),
        "step": ("required", "per_step"),
        "readout": ("optional", "per_tick"),
    },
    "video_generation_pipeline": {
        "condition": ("required", "per_request"),
        "init": ("required", "per_request"),
        "step": ("required", "per_step"),
        "decode": ("optional", "per_request"),
    },
}
WINDOWS = {
    "vla_tick_pipeline": {"observation": "condition", "noise": "init"},
    "video_generation_pipeline": {"latent": "init"},
}


@pytest.mark.parametrize("name", sorted(STAGES))
def test_stages_schedule_windows_and_gate(name: str) -> None:
    spec = load(name)
    assert spec.kind is Kind.PIPELINE
    found = {n: (stage.presence.value, stage.cadence) for n, stage in spec.stages.items()}
    assert list(found.items()) == list(STAGES[name].items())
    assert spec.schedule is not None
    assert (spec.schedule.kind.value, spec.schedule.stage) == ("fixed_steps", "step")
    assert {n: window.stage for n, window in spec.windows.items()} == WINDOWS[name]
    assert {window.presence for window in spec.windows.values()} == {Presence.REQUIRED}
    gates = spec.gates
    assert (gates.metric, dict(gates.bands)) == ("cosine", {"pass": 0.999, "warn": 0.995})
    assert gates.margin == 1.02


@pytest.mark.parametrize("name", sorted(STAGES))
def test_its_reference_is_the_host(name: str) -> None:
    with pytest.raises(Refusal, match="unmodified host") as refused:
        load_reference(load(name))
    assert refused.value.reason is Reason.STRUCTURE


def test_video_generation_inherits_nothing_of_a_policys_tick() -> None:
    text = Path(load("video_generation_pipeline").path).read_text().lower()
    for word in ("observation", "action", "tick", "robot", "policy", "chunk", "noise", "readout"):
        assert word not in text, word


@pytest.mark.parametrize("name", sorted(STAGES))
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("schedule: {kind: fixed_steps, stage: step", "schedule: {kind: fixed_steps, stage: steps"),
        ("stage: init, required: true", "stage: begin, required: true"),
    ],
)
def test_a_schedule_or_window_of_no_stage_is_refused(
    tmp_path: Path, name: str, old: str, new: str
) -> None:
    text = Path(load(name).path).read_text()
    assert old in text
    target = tmp_path / name / "structure.yaml"
    target.parent.mkdir()
    target.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=r"stage") as refused:
        read(target)
    word = new.partition("stage: ")[2].partition(",")[0]
    assert word in str(refused.value)
