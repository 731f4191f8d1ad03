"""Specs whose state, domains, repeats, parts or schedule mean nothing, each at its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flashrt.document.problem import InputError
from flashrt.spec.domain import DomainKind, Function
from flashrt.spec.model import CaptureKind, JudgedAt, Presence, ScheduleKind
from flashrt.spec.reader import read
from flashrt.spec.trial import read_reference, try_reference
from flashrt_runtime.reason import Reason

REGION = """\
schema: flashrt.structure/1
name: whole
version: 1
kind: region
summary: Everything that a region may say.
dims: {M: rows, D: width, P: producers, G: groups, R: turned}
constraints: ["D == G*R", "2 divides R"]
composes: [linear_proj@1]
boundary:
  rows: M
  inputs:
    x: {dims: [M, D], dtype: "@binding", domain: {kind: uniform, low: -1, high: 1.5}}
    cos: {dims: ["M | 1", R], dtype: float32, domain: {kind: angle, of: cos}}
    sin: {dims: ["M | 1", R], dtype: float32, domain: {kind: angle, of: sin}}
    ranges: {dims: [2, 2], dtype: int64, domain: {kind: ranges, within: D}}
    held: {dims: [M, D], dtype: float32, repeat: P, role: state, carries: next, optional: true}
  outputs:
    y: {dims: [M, D], dtype: "@binding", role: content}
    next: {dims: [M, D], dtype: float32, repeat: P, role: state}
weights:
  table: {dims: [P, D], layout: table}
  conv: {dims: [D, R, R, R, R], layout: conv_out_in_t_h_w}
  weight: {dims: [D, D], layout: out_in, repeat: P}
variants:
  norm: {values: [per_head, wide]}
  head_dim: {dim: R, when: {norm: [wide]}}
calibration:
  points:
    y: {dims: [M, D]}
captures:
  buffer: {kind: content, dims: [P, M, D], dtype: float32, meaning: what the plan keeps}
  patch: {kind: observation, when: {norm: [wide]}, meaning: what it looks at}
gates:
  metric: cosine
  bands: {pass: 0.999, warn: 0.995}
  margin: 1.02
  judged_at: pipeline
reference: reference.py
"""

PIPELINE = """\
schema: flashrt.structure/1
name: whole
version: 1
kind: pipeline
summary: Everything that a pipeline may say.
stages:
  condition: {required: true, cadence: per_observation}
  init: {required: true, cadence: per_tick}
  step: {required: true, cadence: per_step}
schedule: {kind: fixed_steps, stage: step, meaning: the sampler's steps}
windows:
  noise: {stage: init, required: true, meaning: the starting noise}
gates:
  metric: cosine
  bands: {pass: 0.999, warn: 0.995}
  margin: 1.02
reference: "@host"
"""

Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """A spec with one text replaced by another."""

    def write(text: str, old: str = "", new: str = "") -> Path:
        assert old in text
        folder = tmp_path / "whole"
        folder.mkdir()
        (folder / "structure.yaml").write_text(text.replace(old, new, 1))
        (folder / "reference.py").write_text("def reference(): ...\ndef cost(): ...\n")
        return folder

    return write


def test_a_region_is_read_whole(written: Write) -> None:
    spec = read(written(REGION))
    assert [str(c) for c in spec.constraints] == ["D == G*R", "2 divides R"]
    assert spec.composes == ("linear_proj@1",)
    x, cos, ranges = (spec.inputs[n].domain for n in ("x", "cos", "ranges"))
    assert (x.kind, x.low, x.high) == (DomainKind.UNIFORM, -1.0, 1.5)
    assert (cos.kind, cos.of) == (DomainKind.ANGLE, Function.COS)
    assert (ranges.kind, str(ranges.bound), ranges.whole) == (DomainKind.RANGES, "D", True)
    held = spec.inputs["held"]
    assert (held.repeat, held.carries, held.presence) == ("P", "next", Presence.OPTIONAL)
    assert held.tensor_names({"P": 2}) == ["held.0", "held.1"]
    assert set(spec.state_inputs({"norm": "wide"})) == {"held"}
    assert spec.slots["weight"].used() == {"D", "P"}
    assert spec.captures["buffer"].kind is CaptureKind.CONTENT
    assert spec.captures["patch"].when == {"norm": ("wide",)}
    assert spec.gates.judged_at is JudgedAt.PIPELINE
    assert spec.optional_dims({"norm": "per_head"}) == set()


def test_a_pipeline_is_read_whole(written: Write) -> None:
    spec = read(written(PIPELINE))
    assert spec.schedule is not None
    assert (spec.schedule.kind, spec.schedule.stage) == (ScheduleKind.FIXED_STEPS, "step")
    assert spec.windows["noise"].presence is Presence.REQUIRED
    assert [s.cadence for s in spec.stages.values()] == ["per_observation", "per_tick", "per_step"]


INPUTS, OUTPUTS = "$.boundary.inputs", "$.boundary.outputs"


@pytest.mark.parametrize(
    ("old", "new", "path", "words"),
    [
        ('"D == G*R"', '"D == Q*R"', "$.constraints[0]", "Q is not declared"),
        ('"D == G*R"', '"D == G*R == M"', "$.constraints[0]", "a constraint has one of"),
        ('"D == G*R"', '"D < R"', "$.constraints[0]", "does not match"),
        ("G: groups", "G: groups, Z: none", "$.dims.Z", "no tensor has the dim Z"),
        ("P, role: state, c", "Q, role: state, c", f"{INPUTS}.held.repeat", "Q is not declared"),
        ("low: -1", "low: 1.5", f"{INPUTS}.x.domain", "no value is from 1.5 to 1.5"),
        ("low: -1, ", "", f"{INPUTS}.x.domain", "'low' is a required property"),
        ("of: cos", "of: tan", f"{INPUTS}.cos.domain.of", "is not one of"),
        ("of: cos", "of: cos, low: 1", f"{INPUTS}.cos.domain.low", "should not be valid"),
        ("within: D", "within: Q", f"{INPUTS}.ranges.domain.within", "Q is not declared"),
        ("within: D", 'within: "D | 1"', f"{INPUTS}.ranges.domain.within", "alternatives mean"),
        ("[2, 2]", "[2, 3]", f"{INPUTS}.ranges.domain", "two numbers a row"),
        ("int64, domain", "float32, domain", f"{INPUTS}.ranges.domain.kind", "does not fit"),
        (", domain: {kind: ranges, within: D}", "", f"{INPUTS}.ranges.dtype", "are not said"),
        ('cos: {dims: ["M | 1", R]', "cos: {dims: []", f"{INPUTS}.cos.domain", "one axis"),
        ("carries: next", "carries: nxt", f"{INPUTS}.held.carries", "no output nxt"),
        ("carries: next", "carries: y", f"{INPUTS}.held.carries", "not of role state"),
        (", carries: next", "", f"{INPUTS}.held.role", "belong together"),
        ("role: state, carries", "role: value, carries", f"{INPUTS}.held.carries", "together"),
        ("float32, repeat: P, role: state}", "float32, role: state}",
         f"{INPUTS}.held.repeat", "not the same"),
        ("float32, repeat: P, role: state,", "float64, repeat: P, role: state,",
         f"{INPUTS}.held.dtype", "not the same"),
        ("role: content", "role: content, optional: true", f"{OUTPUTS}.y.optional", "no optional"),
        ("role: content", "role: contents", f"{OUTPUTS}.y.role", "is not one of"),
        ("[P, D], layout: table", "[P], layout: table", "$.weights.table.layout", "have 1 axes"),
        ("[D, R, R, R, R]", "[D, R, R]", "$.weights.conv.layout", "not have 3 axes"),
        ("layout: table", "layout: tabel", "$.weights.table.layout", "is not one of"),
        ("dim: R", "dim: Q", "$.variants.head_dim.dim", "Q is not declared"),
        ("dim: R", 'dim: R, number: "1"', "$.variants.head_dim", "valid under each"),
        ("y: {dims: [M, D]}", "y: {dims: [M, R]}", "$.calibration.points.y", "is an output too"),
        ("[P, M, D], dt", "[P, M, Q], dt", "$.captures.buffer.dims[2]", "Q is not declared"),
        ("kind: observation", "kind: glance", "$.captures.patch.kind", "is not one of"),
        ("linear_proj@1", "whole@1", "$.composes[0]", "not a part of itself"),
        ("linear_proj@1", "linear_proj", "$.composes[0]", "does not match"),
        ("judged_at: pipeline", "judged_at: host", "$.gates.judged_at", "is not one of"),
    ],
)  # fmt: skip
def test_a_region_that_means_nothing_is_refused_at_its_line(
    written: Write, old: str, new: str, path: str, words: str
) -> None:
    refused_at(written(REGION, old, new), path, words)


@pytest.mark.parametrize(
    ("old", "new", "path", "words"),
    [
        ("steps, stage: step", "steps, stage: stop", "$.schedule.stage", "no stage stop"),
        ("steps, stage: step", "steps, stage: init", "$.schedule.stage", "per_tick"),
        ("kind: fixed_steps", "kind: token_loop", "$.schedule.stage", "per_step"),
        ("kind: fixed_steps", "kind: forever", "$.schedule.kind", "is not one of"),
        ("stage: init,", "stage: start,", "$.windows.noise.stage", "no stage start"),
        ("required: true, meaning", "meaning", "$.windows.noise", "'required' is a required"),
        ("per_observation", "per_day", "$.stages.condition.cadence", "is not one of"),
        ("margin: 1.02", "margin: 1.02\n  judged_at: region", "$.gates.judged_at", "at itself"),
        ("reference:", "composes: [linear_proj@1]\nreference:", "$.composes", "not be"),
        ("reference:", "captures: {}\nreference:", "$.captures", "not be"),
        ("reference:", "constraints: []\nreference:", "$.constraints", "not be"),
    ],
)  # fmt: skip
def test_a_pipeline_that_means_nothing_is_refused_at_its_line(
    written: Write, old: str, new: str, path: str, words: str
) -> None:
    refused_at(written(PIPELINE, old, new), path, words)


def refused_at(folder: Path, path: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(folder)
    found = [p for p in caught.value.problems if p.path == path]
    assert found, [str(p) for p in caught.value.problems]
    assert any(words in p.what for p in found), [p.what for p in found]
    lines = (folder / "structure.yaml").read_text().splitlines()
    leaf = path.rpartition(".")[2].partition("[")[0]
    # What is missing is told at the entry that lacks it.
    assert leaf in lines[found[0].line - 1] or path.split(".")[-2] in lines[found[0].line - 1]


def test_a_region_says_no_schedule(written: Write) -> None:
    folder = written(REGION, "reference:", "schedule: {kind: token_loop, stage: x}\nreference:")
    with pytest.raises(InputError, match="schedule"):
        read(folder)


@pytest.mark.parametrize(
    ("part", "reason", "words"),
    [
        ("liner_proj@1", Reason.STRUCTURE, "no structure of this name"),
        ("linear_proj@7", Reason.STRUCTURE, "not in the catalog"),
        ("autoregressive_decode_pipeline@1", Reason.STRUCTURE, "is a pipeline"),
    ],
)
def test_a_part_that_is_not_there_is_found_without_running_anything(
    written: Write, part: str, reason: Reason, words: str
) -> None:
    spec = read(written(REGION, "linear_proj@1", part))
    for found in (read_reference(spec), try_reference(spec)):
        assert [(p.path, p.reason) for p in found] == [("$.composes[0]", reason)]
        assert words in found[0].what
        assert "composes" in Path(found[0].file).read_text().splitlines()[found[0].line - 1]
    assert read_reference(read(written_again(spec.path))) == []


def written_again(path: Path) -> Path:
    """The same spec with a part that is there."""
    path.write_text(REGION)
    return path
