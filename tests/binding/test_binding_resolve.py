"""Resolving a binding on a real module tree: expansion, dims, and refusals by file, line, path."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from flashrt.binding import bindings_root, load_binding, resolve
from flashrt.binding.tree import index_of
from flashrt.document.problem import InputError
from flashrt.host.tiny import build
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason, Refusal

Edit = Callable[[str, str], Path]


def tiny(**change: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {
        "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
        "rms_norm_eps": 1e-5,
    }  # fmt: skip
    return LlamaForCausalLM(LlamaConfig(**(sizes | change))).eval().requires_grad_(False)


def refused(file: Path, model: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        resolve(load_binding(file), model)
    return caught.value


def test_every_layer_has_its_seams(llama: Any) -> None:
    seams = resolve(load_binding("smollm2"), llama)
    assert len(seams) == 2 * 9 + 2
    assert len({s.id for s in seams}) == len(seams)
    ffn = next(s for s in seams if s.structure == "decoder_ffn@1")
    assert ffn == Seam(
        id="model.layers.0.mlp",
        structure="decoder_ffn@1",
        members={"self": "model.layers.0.mlp"},
        variant={"norm": "host", "activation": "silu", "residual": "host", "modulation": "none"},
        dims={"D": 64, "F": 96},
        weights={
            "gate": "model.layers.0.mlp.gate_proj.weight",
            "up": "model.layers.0.mlp.up_proj.weight",
            "down": "model.layers.0.mlp.down_proj.weight",
        },
        points={
            "x_after_norm": Point("model.layers.0.mlp", "input"),
            "act_after_mul": Point("model.layers.0.mlp.down_proj", "input"),
        },
    )
    qkv = next(s for s in seams if s.id == "model.layers.1.self_attn.qkv")
    assert list(qkv.members) == ["q", "k", "v"]
    assert dict(qkv.dims) == {"D": 64, "Nq": 64, "Nk": 32, "Nv": 32}
    head = next(s for s in seams if s.id == "lm_head")
    assert dict(head.dims) == {"K": 64, "N": 128}
    assert Seam.from_record(head.record()) == head


def test_the_host_is_left_as_it_was(llama: Any) -> None:
    before = {n: t.clone() for n, t in llama.state_dict().items()}
    state = torch.get_rng_state()
    resolve(load_binding("smollm2"), llama)
    assert all(torch.equal(before[n], t) for n, t in llama.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(not m._forward_hooks for m in llama.modules())


WRONG = [
    (
        "module: model.layers.{i}.mlp\n    members: {self: \"model.layers.{i}.mlp\"}",
        "module: model.layers.{i}.mpl\n    members: {self: \"model.layers.{i}.mpl\"}",
        "$.regions.ffn.module", Reason.BINDING, "did you mean model.layers.0.mlp",
    ),
    (
        "mlp.gate_proj.weight", "mlp.gate_projj.weight",
        "$.regions.ffn.weights.gate.at", Reason.BINDING,
        "did you mean model.layers.0.mlp.gate_proj.weight",
    ),
    (
        'module: "model.layers.{i}.mlp.down_proj"', 'module: "model.layers.{i}.mlp.down"',
        "$.regions.ffn.points.act_after_mul.module", Reason.BINDING, "did you mean",
    ),
    (
        'module: "model.layers.{i}.mlp.down_proj"', 'module: "model.layers.{i}.mlp.up_proj"',
        "$.regions.ffn.points.act_after_mul", Reason.BINDING, "name the module and the side",
    ),
    (
        'mlp.down_proj", capture: input', 'mlp.down_proj", capture: output',
        "$.regions.ffn.points.act_after_mul", Reason.BINDING, "name the module and the side",
    ),
    (
        "activation: silu", "activation: gelu_tanh",
        "$.regions.ffn.variant", Reason.BINDING, "check the variant",
    ),
    (
        "dtype: float32", "dtype: bfloat16",
        "$.regions.ffn.boundary.dtype", Reason.DTYPE, "load the host in bfloat16",
    ),
    (
        ", tied: model.embed_tokens.weight", "",
        "$.regions.head.weights.weight.at", Reason.TIED, "say tied: model.embed_tokens.weight",
    ),
    (
        'transformers: ">=5.17,<6"', 'transformers: ">=4,<5"',
        "$.host.packages.transformers", Reason.SOFTWARE, "qualify a binding",
    ),
    (
        "packages: {", "packages: {no-such-package: '>=1', ",
        "$.host.packages.no-such-package", Reason.SOFTWARE, "install no-such-package",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case[2])
def test_what_does_not_fit_the_host_is_refused_at_its_line(
    edit: Edit, llama: Any, case: tuple[str, str, str, Reason, str]
) -> None:
    old, new, path, reason, advice = case
    file = edit(old, new)
    error = refused(file, llama)
    found = [p for p in error.problems if p.path == path]
    assert found, [str(p) for p in error.problems]
    assert found[0].reason is reason
    assert advice in found[0].do
    assert found[0].line > 1
    assert str(found[0]).startswith(f"{file}:{found[0].line}: {path}: ")


def test_a_problem_of_every_layer_is_said_once(edit: Edit, llama: Any) -> None:
    error = refused(edit("mlp.gate_proj.weight", "mlp.gate_projj.weight"), llama)
    paths = [p.path for p in error.problems]
    assert len(paths) == len(set(paths))


def swapped(packaged: str, a: str, b: str) -> str:
    text = packaged.replace(f"mlp.{a}_proj.weight", "mlp.X.weight", 1)
    text = text.replace(f"mlp.{b}_proj.weight", f"mlp.{a}_proj.weight", 1)
    return text.replace("mlp.X.weight", f"mlp.{b}_proj.weight", 1)


def test_slots_of_other_shapes_contradict_each_other(edit: Edit, packaged: str, llama: Any) -> None:
    file = edit("name", "name")
    file.write_text(swapped(packaged, "gate", "down"))
    error = refused(file, llama)
    assert [p.path for p in error.problems] == ["$.regions.ffn.weights.up.at"]
    assert error.reason is Reason.SHAPE
    assert "decoder_ffn@1 has up as [F, D]" in error.do
    assert "model.layers.0.mlp.up_proj.weight axis 0 says F = 96" in error.what
    assert "model.layers.0.mlp.down_proj.weight axis 0 says F = 64" in error.what


def test_slots_that_are_swapped_are_seen_in_the_numbers(edit: Edit, packaged: str) -> None:
    """gate and up have one shape: only running the region tells them apart."""
    file = edit("name", "name")
    file.write_text(swapped(packaged, "gate", "up"))
    error = refused(file, tiny())
    assert [p.path for p in error.problems] == ["$.regions.ffn.variant"]
    assert "does not compute decoder_ffn@1" in error.problems[0].what


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"hidden_act": "gelu_pytorch_tanh"}, "$.regions.ffn.variant", "does not compute"),
        ({"mlp_bias": True}, "$.regions.ffn.members.self", "gate_proj.bias in this module"),
        ({"attention_bias": True}, "$.regions.qkv.members.q", "q_proj.bias in this module"),
    ],
)
def test_another_host_of_the_family_is_refused_by_what_it_does(
    change: dict[str, Any], path: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        resolve(load_binding("smollm2"), tiny(**change))
    found = [p for p in caught.value.problems if p.path == path]
    assert found, [str(p) for p in caught.value.problems]
    assert words in found[0].what


def test_a_head_that_is_not_tied_resolves_too() -> None:
    model = tiny(tie_word_embeddings=False)
    assert "lm_head" in {s.id for s in resolve(load_binding("smollm2"), model)}


def test_a_layer_that_shares_its_weights_is_refused() -> None:
    model = tiny()
    model.model.layers[1].mlp.up_proj.weight = model.model.layers[0].mlp.up_proj.weight
    with pytest.raises(InputError) as caught:
        resolve(load_binding("smollm2"), model)
    assert caught.value.reason is Reason.TIED


def test_only_the_layers_that_have_the_module_are_bound() -> None:
    model = tiny(num_hidden_layers=3)
    model.model.layers[1].mlp = torch.nn.Identity().eval()
    binding = load_binding("smollm2")
    with pytest.raises(InputError) as caught:
        resolve(binding, model)
    assert "model.layers.1.mlp.gate_proj.weight" in caught.value.problems[0].what
    del model.model.layers[1].mlp
    ids = {s.id for s in resolve(binding, model)}
    assert "model.layers.1.mlp" not in ids
    assert "model.layers.2.mlp" in ids


def test_a_host_without_the_structure_is_refused() -> None:
    binding = load_binding("smollm2")
    with pytest.raises(InputError) as caught:
        resolve(binding, torch.nn.Sequential(torch.nn.Linear(4, 4)).eval())
    assert {p.path for p in caught.value.problems} == {
        f"$.regions.{r}.module" for r in binding.regions
    }


def test_the_meta_device_resolves_without_running() -> None:
    with torch.device("meta"):
        model = tiny()
    assert len(resolve(load_binding("smollm2"), model)) == 20


def test_a_bfloat16_host_needs_a_bfloat16_binding(edit: Edit, packaged: str, llama: Any) -> None:
    model = copy.deepcopy(llama).to(torch.bfloat16)
    file = edit("name", "name")
    file.write_text(packaged.replace("dtype: float32", "dtype: bfloat16"))
    error = refused(file, model)
    norms = {f"$.regions.{n}.boundary.dtype" for n in ("input_norm", "post_norm", "final_norm")}
    assert {p.path for p in error.problems} == norms  # norm_fused is float32 by contract
    whole = packaged.index("\n  input_norm:"), packaged.index("\n  attention:")
    without = packaged[: whole[0]] + packaged[whole[1] : packaged.index("\npipeline:")]
    file.write_text(without.replace("dtype: float32", "dtype: bfloat16"))
    assert len(resolve(load_binding(file), model)) == 15
    error = refused(edit("name", "name"), model)
    assert {p.reason for p in error.problems} == {Reason.DTYPE}


def test_versions_can_be_given(llama: Any) -> None:
    binding = load_binding("smollm2")
    with pytest.raises(InputError, match=r"transformers 6\.1 is outside"):
        resolve(binding, llama, versions={"transformers": "6.1", "torch": "2.13.0+cpu"})


@pytest.mark.parametrize(
    ("template", "path", "index"),
    [
        ("a.{i}.b", "a.0.b", 0),
        ("a.{i}.b", "a.12.b", 12),
        ("a.{i}.b", "a.x.b", None),
        ("a.{i}.b", "a.01.b", None),
        ("a.{i}.b", "aX0.b", None),
        ("a.{i}.{i}", "a.3.3", 3),
        ("a.{i}.{i}", "a.3.4", None),
        ("a.b", "a.b", -1),
    ],
)
def test_templates_match_whole_paths(template: str, path: str, index: int | None) -> None:
    assert index_of(template, path) == index


def test_a_host_in_training_mode_is_refused() -> None:
    with pytest.raises(Refusal, match="training mode") as caught:
        resolve(load_binding("smollm2"), tiny().train())
    assert caught.value.reason is Reason.TRAINING


@pytest.mark.parametrize("eps", ["1e-06", "2e-05"])
def test_an_eps_that_the_host_has_not_is_refused(edit: Edit, eps: str) -> None:
    """Rows of ordinary size hide it: a quiet row is among those that are drawn."""
    error = refused(edit('eps: "1e-05"', f'eps: "{eps}"'), tiny())
    assert [p.path for p in error.problems] == ["$.regions.input_norm.variant"]


def test_one_place_in_two_roles_is_refused(tmp_path: Path) -> None:
    """qwen3's qkv with k and v exchanged throughout is consistent in itself."""
    text = (bindings_root() / "qwen3.yaml").read_text()
    head, rest = text.split("\n  qkv:\n", 1)
    body, tail = rest.split("\n  q:\n", 1)
    body = body.replace("k_proj", "?").replace("v_proj", "k_proj").replace("?", "v_proj")
    file = tmp_path / "qwen3.yaml"
    file.write_text(f"{head}\n  qkv:\n{body}\n  q:\n{tail}")
    with pytest.raises(InputError) as caught:
        resolve(load_binding(file), build("qwen3").model)
    assert {p.path for p in caught.value.problems} == {
        f"$.regions.qk_rope.boundary.inputs.{role}" for role in "kv"
    }
    assert "is v here and k in the region qkv" in str(caught.value)
