"""Proving a binding: the host's own tensors against each region's reference, in one forward."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from flashrt.binding import load_binding
from flashrt.binding.proof import Proof, prove
from flashrt.document.problem import InputError

HEAD = """\
schema: flashrt.binding/1
name: tiny
summary: A host of the tests.
host:
  family: qwen
  loader: transformers
  packages: {transformers: ">=5.17,<6"}
regions:
"""

ATTENTION = """\
  core:
    structure: attention_core@1
    spec_digest: "DIGEST"
    adapter: attention_interface
    module: model.layers.{i}.self_attn
    members: {self: "model.layers.{i}.self_attn"}
    variant: {mask: causal, scaling: inverse_sqrt}
    weights: {}
    points: {}
    boundary:
      dtype: float32
      inputs:
        q: {
          module: "model.layers.{i}.self_attn", capture: sdpa, name: query,
          then: [{axes: [0, 2, 1, 3]}]}
        k: {
          module: "model.layers.{i}.self_attn", capture: sdpa, name: key,
          then: [{axes: [0, 2, 1, 3]}]}
        v: {
          module: "model.layers.{i}.self_attn", capture: sdpa, name: value,
          then: [{axes: [0, 2, 1, 3]}]}
      outputs:
        y: {
          module: "model.layers.{i}.self_attn", capture: sdpa, name: output,
          then: [{axes: [0, 2, 1, 3]}]}
"""

ROPE = """\
  rope:
    structure: qk_norm_rope@1
    spec_digest: "DIGEST"
    adapter: attention_interface
    module: model.layers.{i}.self_attn
    members: {self: "model.layers.{i}.self_attn"}
    variant: {norm: per_head, gain: direct}
    weights:
      q_norm: {at: "model.layers.{i}.self_attn.q_norm.weight", layout: vector}
      k_norm: {at: "model.layers.{i}.self_attn.k_norm.weight", layout: vector}
    points: {}
    boundary:
      dtype: float32
      inputs:
        q: {module: "model.layers.{i}.self_attn.q_proj", capture: output}
        k: {module: "model.layers.{i}.self_attn.k_proj", capture: output}
        v: {module: "model.layers.{i}.self_attn.v_proj", capture: output}
        cos: {
          module: "model.layers.{i}.self_attn", capture: input, name: position_embeddings,
          then: [{item: 0}]}
        sin: {
          module: "model.layers.{i}.self_attn", capture: input, name: position_embeddings,
          then: [{item: 1}]}
      outputs:
        q: {
          module: "model.layers.{i}.self_attn", capture: sdpa, name: query,
          then: [{axes: [0, 2, 1, 3]}]}
        k:
          module: model.layers.{i}.self_attn
          capture: sdpa
          name: key
          then: [{axes: [0, 2, 1, 3]}]
        v: {
          module: "model.layers.{i}.self_attn", capture: sdpa, name: value,
          then: [{axes: [0, 2, 1, 3]}]}
"""


@pytest.fixture(scope="module")
def qwen() -> Qwen3ForCausalLM:
    """Two layers, four 16-wide heads over two, a norm of each head with its own gain."""
    torch.manual_seed(0)
    config = Qwen3Config(
        num_hidden_layers=2, hidden_size=48, intermediate_size=64, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, vocab_size=64, tie_word_embeddings=False,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).eval().requires_grad_(False)
    for name, tensor in model.named_parameters():
        if "norm" in name:
            tensor.add_(0.3 * torch.randn_like(tensor))
    return model


@pytest.fixture
def bind(tmp_path: Path) -> Callable[..., Path]:
    """A binding of these regions, with texts replaced."""

    def write(*regions: str, edits: dict[str, str] | None = None) -> Path:
        text = HEAD
        for region in regions:
            text += region.replace("DIGEST", "sha256:" + "0" * 64)
        for old, new in (edits or {}).items():
            assert old in text
            text = text.replace(old, new)
        file = tmp_path / "tiny.yaml"
        file.write_text(text)
        return file

    return write


def run(model: Any, length: int = 7) -> Callable[[], object]:
    ids = torch.arange(length)[None] % 64
    return lambda: model(ids)


def bad(proofs: list[Proof]) -> list[Proof]:
    return [p for p in proofs if not p.ok]


def test_the_packaged_binding_is_proven_with_and_without_addresses(llama: Any) -> None:
    proofs = prove(load_binding("smollm2"), llama, run(llama))
    assert bad(proofs) == []
    seen = {(p.region, p.output) for p in proofs}
    assert {("ffn", "y"), ("ffn", "act_after_mul"), ("qkv", "k"), ("head", "y")} <= seen
    assert {("attention", "y"), ("final_norm", "y")} <= seen
    ffn, qkv, linears, norms, attention = 3, 4, 4 * 2, 2, 1
    eps = 2 * norms + 1
    assert len(proofs) == 2 * (ffn + qkv + linears + norms + attention) + 2 + 1 + eps
    assert all(p.agreement and p.agreement.cosine >= 0.9999 for p in proofs)


def test_regions_inside_a_members_forward_are_proven(qwen: Any, bind: Any) -> None:
    proofs = prove(load_binding(bind(ATTENTION, ROPE)), qwen, run(qwen))
    assert bad(proofs) == []
    assert {(p.seam_id, p.output) for p in proofs} == {
        (f"model.layers.{i}.self_attn.{name}", output)
        for i in (0, 1)
        for name, outputs in (("attention_core", ["y"]), ("qk_norm_rope", ["q", "k", "v", "eps"]))
        for output in outputs
    }


def test_indices_narrow_the_layers(qwen: Any, bind: Any) -> None:
    proofs = prove(load_binding(bind(ATTENTION)), qwen, run(qwen), indices=[1])
    assert [p.seam_id for p in proofs] == ["model.layers.1.self_attn.attention_core"]


WRONG = [
    ("mask: causal", "mask: none", "y", "cosine"),
    ("scaling: inverse_sqrt", 'scaling: given, scale: "0.5"', "y", "cosine"),
    (
        "name: output,\n          then: [{axes: [0, 2, 1, 3]}]",
        "name: output",
        "y",
        "the host has [1, 4, 7, 16]",
    ),
    ("name: value,\n          then: [{axes: [0, 2, 1, 3]}]", "name: value", "", "does not run"),
    (
        "name: query,\n          then: [{axes: [0, 2, 1, 3]}]",
        "name: query, then: [{axes: [0, 1]}]",
        "",
        "axes [0, 1]",
    ),
    ("capture: sdpa, name: output", "capture: output", "y", "then[0] axes"),
]


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case[1])
def test_a_wrong_address_or_variant_is_not_ok(
    qwen: Any, bind: Any, case: tuple[str, str, str, str]
) -> None:
    old, new, output, words = case
    proofs = prove(load_binding(bind(ATTENTION, edits={old: new})), qwen, run(qwen), indices=[0])
    assert [(p.output, p.ok) for p in proofs] == [(output, False)]
    assert words in proofs[0].why


MISSING = [
    ("capture: output}", "capture: call, slot: forward, name: y}", ".inputs.q.name"),
    ('self_attn.k_proj", capture', 'self_attn.k_pro", capture', ".inputs.k.module"),
    ("capture: output}", "capture: call, slot: nothing}", ".inputs.q.slot"),
    ("{item: 0}", "{add: 'model.layers.{i}.none'}", ".inputs.cos.then[0].add"),
    ("{item: 0}", "{unflatten: [0, heads]}", ".inputs.cos.then[0].unflatten"),
]


@pytest.mark.parametrize(("old", "new", "path"), MISSING)
def test_an_address_the_host_does_not_have_is_refused_at_its_line(
    qwen: Any, bind: Any, old: str, new: str, path: str
) -> None:
    file = bind(ROPE, edits={old: new})
    with pytest.raises(InputError) as caught:
        prove(load_binding(file), qwen, run(qwen))
    found = [p for p in caught.value.problems if p.path == f"$.regions.rope.boundary{path}"]
    assert found, str(caught.value)
    assert new.split("{", maxsplit=1)[0] in file.read_text().splitlines()[found[0].line - 1]


def test_what_is_never_called_is_said(qwen: Any, bind: Any) -> None:
    proofs = prove(load_binding(bind(ATTENTION)), qwen, lambda: None)
    assert len(proofs) == 2
    assert all("no scaled_dot_product_attention was called" in p.why for p in proofs)


def test_the_host_is_left_as_it_was_even_when_it_fails(qwen: Any, bind: Any) -> None:
    def fail() -> object:
        qwen(torch.zeros((1, 3), dtype=torch.int64))
        raise RuntimeError("the host fell over")

    with pytest.raises(RuntimeError, match="fell over"):
        prove(load_binding(bind(ATTENTION, ROPE)), qwen, fail)
    for module in qwen.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def test_a_region_without_addressed_outputs_is_reported(qwen: Any, bind: Any) -> None:
    body = ATTENTION[: ATTENTION.index("      inputs:")]
    file = bind(body, edits={"regions:\n": "provisional: {reason: r, sources: [s]}\nregions:\n"})
    proofs = prove(load_binding(file), qwen, run(qwen))
    assert [(p.region, p.ok, p.why) for p in proofs] == [
        ("core", False, "no output is addressed")
    ] * 2
