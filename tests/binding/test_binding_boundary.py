"""Addresses, adapters, gaps, windows and provisional bindings: read, recorded, refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashrt.binding import load_binding
from flashrt.binding.address import Capture
from flashrt.binding.model import Adapter
from flashrt.document.problem import InputError

TEXT = f"""\
schema: flashrt.binding/1
name: tiny
summary: A host of the tests.
host:
  family: vla
  loader: torch
  packages: {{torch: ">=2"}}
regions:
  core:
    structure: attention_core@1
    spec_digest: "sha256:{"0" * 64}"
    adapter: gated_delta_slots
    module: a.{{i}}
    members: {{self: "a.{{i}}"}}
    variant: {{mask: none, scaling: inverse_sqrt}}
    weights: {{}}
    points: {{}}
    boundary:
      dtype: float32
      inputs:
        q: {{
          module: "a.{{i}}", capture: call, slot: core, name: q,
          then: [{{item: 0}}, {{add: "a.{{i}}.b"}}]}}
        k: {{
          module: "a.{{i}}", capture: input, name: k,
          then: [{{chunk: [3, -1, 1]}}, {{unflatten: [2, -1, dim]}}]}}
        v: {{
          module: "a.{{i}}", capture: sdpa, name: value,
          then: [{{axes: [0, 2, 1, 3]}}, {{squeeze: 0}}]}}
      outputs:
        y: {{
          module: "a.{{i}}", capture: output,
          then: [{{narrow: [1, 0, n]}}, {{flatten: [0, 1]}}]}}
pipeline:
  structure: vla_tick_pipeline@1
  spec_digest: "sha256:{"0" * 64}"
  stages: [condition, init, step]
  hot_path: [see, start, attend]
  windows:
    observation: {{at: pixels, meaning: what the camera saw}}
    noise: {{at: noise, meaning: where the steps begin}}
  steps: {{from: num_steps, meaning: one Euler step}}
  segments:
    attention: {{classification: structure, covers: [attend], stages: [step], regions: [core]}}
    seeing:
      {{classification: host_stage, covers: [see], stages: [condition], owner: it, gap: an eye}}
    starting: {{classification: host_stage, covers: [start], stages: [init], owner: the caller}}
"""


def written(folder: Path, old: str = "", new: str = "") -> Path:
    assert old in TEXT
    file = folder / "tiny.yaml"
    file.write_text(TEXT.replace(old, new, 1) if old else TEXT)
    return file


def test_every_addition_is_read_and_recorded(tmp_path: Path) -> None:
    binding = load_binding(written(tmp_path), require_pipeline_coverage=True)
    core = binding.regions["core"]
    assert core.adapter is Adapter.GATED_DELTA_SLOTS
    assert core.inputs["q"].capture is Capture.CALL
    assert [step.key() for step in core.inputs["q"].then] == ["", "a.{i}.b"]
    assert list(core.inputs["k"].then[1].attributes()) == ["dim"]
    record = binding.manifest()
    assert (
        record["regions"]["core"]["boundary"]
        == binding.document.value["regions"]["core"]["boundary"]
    )
    assert record["regions"]["core"]["adapter"] == "gated_delta_slots"
    assert record["pipeline"]["segments"]["seeing"]["gap"] == "an eye"
    assert record["pipeline"]["windows"]["noise"]["at"] == "noise"
    assert record["pipeline"]["steps"] == {"from": "num_steps", "meaning": "one Euler step"}
    assert "provisional" not in record


def test_a_provisional_binding_says_why_and_may_leave_addresses_out(tmp_path: Path) -> None:
    start, end = TEXT.index("      inputs:"), TEXT.index("pipeline:")
    file = written(tmp_path, TEXT[start:end], "")
    with pytest.raises(InputError, match="reads and writes on this host is not said"):
        load_binding(file)
    why = "provisional: {reason: no package ships it, sources: [its card]}\npipeline:"
    file.write_text(file.read_text().replace("pipeline:", why))
    binding = load_binding(file)
    assert binding.provisional is not None
    assert binding.provisional.sources == ("its card",)
    assert binding.manifest()["provisional"]["reason"] == "no package ships it"


WRONG = [
    ("adapter: gated_delta_slots", "adapter: magic", "core.adapter", "one of"),
    ("capture: call, slot: core", "capture: call", "core.boundary.inputs.q", "slot"),
    ("capture: input, name: k", "capture: input, slot: s, name: k", "core.boundary.inputs.k", ""),
    ("name: value", "name: values", "core.boundary.inputs.v.name", "one of"),
    ("{item: 0}", "{item: 0, squeeze: 1}", "core.boundary.inputs.q.then[0]", "too many"),
    ("{item: 0}", "{}", "core.boundary.inputs.q.then[0]", "non-empty"),
    ("{item: 0}", "{reshape: [1]}", "core.boundary.inputs.q.then[0]", "reshape"),
    ("chunk: [3, -1, 1]", "chunk: [3, -1]", "core.boundary.inputs.k.then[0].chunk", "short"),
    ("        q: {{".replace("{{", "{"), "        qq: {", "core.boundary.inputs.qq", "no input qq"),
    ("        q: {", "        qq: {", "core.boundary.inputs", "input q of attention_core@1"),
    ("        y: {", "        z: {", "core.boundary.outputs.z", "no output z"),
    ("        q: {", "        q.0: {", "core.boundary.inputs.q.0", "no input q.0"),
]


@pytest.mark.parametrize(("old", "new", "path", "words"), WRONG)
def test_what_does_not_fit_is_refused_at_its_path(
    tmp_path: Path, old: str, new: str, path: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_binding(written(tmp_path, old, new))
    found = [p for p in caught.value.problems if p.path == f"$.regions.{path}"]
    assert found, str(caught.value)
    assert any(words in p.what for p in found)


PIPELINE = [
    ("noise: {at: noise", "noises: {at: noise", "windows.noises", "has no window noises"),
    ("noise: {at: noise", "noises: {at: noise", "windows", "requires the window noise"),
    ("  steps: {from: num_steps, meaning: one Euler step}\n", "", "", "where the number of steps"),
    ("regions: [core]}", "regions: [core], gap: x}", "segments.attention.gap", "has no gap"),
]


@pytest.mark.parametrize(("old", "new", "path", "words"), PIPELINE)
def test_a_pipeline_says_its_windows_and_steps(
    tmp_path: Path, old: str, new: str, path: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_binding(written(tmp_path, old, new))
    where = f"$.pipeline.{path}".rstrip(".")
    assert any(p.path == where and words in p.what for p in caught.value.problems), str(
        caught.value
    )
