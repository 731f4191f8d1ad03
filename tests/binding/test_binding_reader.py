"""Loading a binding: names, slots, points and variants the catalog does not have, at their line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from flashrt.binding import load_binding
from flashrt.document.problem import InputError
from flashrt.spec import load
from flashrt.spec.skeleton import files
from flashrt_runtime.reason import Reason, Refusal

Edit = Callable[[str, str], Path]


def test_smollm2_loads_with_its_hot_path_covered() -> None:
    binding = load_binding("smollm2", require_pipeline_coverage=True)
    assert (binding.name, binding.host.family, binding.notices) == ("smollm2", "llama", ())
    assert {r.spec.id for r in binding.regions.values()} == {
        "attention_core@1",
        "decoder_ffn@1",
        "linear_proj@1",
        "norm_fused@1",
        "qkv_pack@1",
    }
    assert binding.pipeline is not None
    assert binding.pipeline.spec.id == "autoregressive_decode_pipeline@1"
    covered = [name for s in binding.pipeline.segments for name in s.covers]
    assert sorted(covered) == sorted(binding.pipeline.hot_path)


def test_the_manifest_is_json_and_free_of_kernels_archs_and_file_paths() -> None:
    binding = load_binding("smollm2")
    text = json.dumps(binding.manifest())
    assert json.loads(text) == binding.manifest()
    for word in ("cuda", "cpu_", "sm90", "gfx", "triton", "kernel", "backend", ".yaml", ".py"):
        assert word not in text
    assert not re.search(r'"[^"]*/[^"]*"', text)
    ffn = binding.manifest()["regions"]["ffn"]
    assert ffn["spec_digest"] == load("decoder_ffn").digest
    assert ffn["points"]["act_after_mul"] == {
        "module": "model.layers.{i}.mlp.down_proj",
        "capture": "input",
    }
    assert binding.manifest()["regions"]["head"]["weights"]["weight"]["tied"] == (
        "model.embed_tokens.weight"
    )


WRONG = [
    ("decoder_ffn@1", "decoder_fnn@1", "$.regions.ffn.structure", "no structure of this name"),
    ("decoder_ffn@1", "decoder_ffn@7", "$.regions.ffn.structure", "not in the catalog"),
    (
        "structure: decoder_ffn@1",
        "structure: autoregressive_decode_pipeline@1",
        "$.regions.ffn.structure",
        "a region is needed here",
    ),
    (
        "structure: autoregressive_decode_pipeline@1",
        "structure: decoder_ffn@1",
        "$.pipeline.structure",
        "a pipeline is needed here",
    ),
    ("      gate: {at", "      gates: {at", "$.regions.ffn.weights.gates", "no slot gates"),
    ("      gate: {at", "      gates: {at", "$.regions.ffn.weights", "slot gate of decoder_ffn"),
    ("      up: {at", "      norm: {at", "$.regions.ffn.weights.norm", "under this variant"),
    (
        "act_after_mul: {",
        "act_after_gate: {",
        "$.regions.ffn.points.act_after_gate",
        "no point act_after_gate",
    ),
    ("act_after_mul: {", "act_after_gate: {", "$.regions.ffn.points", "is not located"),
    ("activation: silu", "activation: relu", "$.regions.ffn.variant.activation", "'relu'"),
    ("activation: silu", "act: silu", "$.regions.ffn.variant.act", "no variant axis"),
    ("norm: host, ", "", "$.regions.ffn.variant.norm", "needs a value for norm"),
    ("layout: out_in", "layout: in_out", "$.regions.ffn.weights.gate.layout", "has layout out_in"),
    (
        "{self: lm_head}",
        "{self: lm_heads}",
        "$.regions.head.members.self",
        "outside the module lm_head",
    ),
    (
        "module: lm_head, capture",
        'module: "model.layers.{i}.mlp", capture',
        "$.regions.head.points.x.module",
        "not in the region's module",
    ),
    ("capture: input", "capture: middle", "$.regions.ffn.points.x_after_norm.capture", "one of"),
    ("dtype: float32", "dtype: float8", "$.regions.ffn.boundary.dtype", "one of"),
    (">=5.17,<6", "^5.17", "$.host.packages.transformers", "does not match"),
    ("mlp.gate_proj.weight", "mlp/gate_proj", "$.regions.ffn.weights.gate.at", "does not match"),
    ("family: llama", "family: llama\n  kernel: x", "$.host", "kernel"),
]


@pytest.mark.parametrize(("old", "new", "path", "words"), WRONG)
def test_what_does_not_fit_the_catalog_is_refused_at_its_line(
    edit: Edit, old: str, new: str, path: str, words: str
) -> None:
    file = edit(old, new)
    with pytest.raises(InputError) as caught:
        load_binding(file)
    found = [p for p in caught.value.problems if p.path == path and words in p.what]
    assert found, [str(p) for p in caught.value.problems]
    problem = found[0]
    assert problem.file == str(file)
    line = file.read_text().splitlines()[problem.line - 1]
    parts = path.split(".")[1:]
    assert any(part in line for part in parts[-2:])


def test_every_problem_is_named_at_once(edit: Edit, packaged: str) -> None:
    text = packaged.replace("act_after_mul: {", "other: {").replace("{bias: none}", "{bias: never}")
    file = edit("name", "name")
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        load_binding(file)
    assert {p.path for p in caught.value.problems} >= {
        "$.regions.ffn.points.other",
        "$.regions.qkv.variant.bias",
    }


def test_an_unknown_name_is_a_refusal_with_the_nearest() -> None:
    with pytest.raises(Refusal) as caught:
        load_binding("smolm2")
    assert caught.value.reason is Reason.BINDING
    assert caught.value.do == "did you mean smollm2"


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load_binding(tmp_path / "none.yaml")


def test_a_recorded_digest_that_is_gone_is_reported_and_not_used(edit: Edit) -> None:
    digest = load("decoder_ffn").digest
    file = edit(digest, "sha256:" + "0" * 64)
    binding = load_binding(file, require_pipeline_coverage=True)
    assert [n.reason for n in binding.notices] == [Reason.STALE_SPEC]
    assert binding.notices[0].path == "$.regions.ffn.spec_digest"
    assert binding.regions["ffn"].spec.digest == digest


def test_coverage_may_be_required(edit: Edit, packaged: str) -> None:
    file = edit("name", "name")
    file.write_text(packaged[: packaged.index("\npipeline:")] + "\n")
    assert load_binding(file).pipeline is None
    with pytest.raises(InputError, match="has no pipeline"):
        load_binding(file, require_pipeline_coverage=True)


def test_a_binding_may_name_a_structure_of_the_callers_catalog(
    tmp_path: Path, packaged: str
) -> None:
    for path, text in files("structure", "mine").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    head = packaged[packaged.index("  head:") : packaged.index("\n  input_norm:")]
    mine = (
        head.replace("linear_proj@1", "mine@1")
        .replace("{bias: none, epilogue: none}", "{}")
        .replace("weight: {at: lm_head.weight, layout: out_in", "gain: {at: g, layout: vector")
        .replace("      x: {", "      x_in: {")
    )
    file = tmp_path / "smollm2.yaml"
    file.write_text(packaged[: packaged.index("  ffn:")] + mine)
    with pytest.raises(InputError, match="no structure of this name"):
        load_binding(file)
    binding = load_binding(file, catalogs=[tmp_path / "catalog"])
    assert binding.regions["head"].spec.id == "mine@1"


@pytest.mark.parametrize(
    "data",
    [
        b"a: &a [1]\nb: *a\n",
        b"schema: !!python/name:os.system\n",
        b"name: a\nname: b\n",
        b"[" * 5000,
        b"",
        b"\x00",
        b"- 1\n",
    ],
)
def test_hostile_files_are_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(data)
    with pytest.raises(InputError) as caught:
        load_binding(file)
    assert caught.value.problems[0].file == str(file)
