"""Every transformers host: its binding resolves, every region's reference gives the host's own
numbers, its whole hot path is classified, and a binding that says something untrue is found out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flashrt.binding import BindingSpec, bindings_root, load_binding, resolve
from flashrt.binding.proof import prove
from flashrt.document.problem import InputError
from flashrt.host.tiny import TinyHost, build
from flashrt_runtime.reason import Reason

DECODER = {"linear_proj@1", "qkv_pack@1", "norm_fused@1", "qk_norm_rope@1", "attention_core@1"}
# tiny host: its binding, seams of the tiny host, structures the binding has, its pipeline
HOSTS = {
    "qwen3": ("qwen3", 24, DECODER | {"decoder_block@1", "decoder_ffn@1"}, "decode"),
    "qwen3_vl": (
        "qwen3_vl",
        45,
        DECODER
        | {"decoder_block@1", "decoder_ffn@1"}
        | {"patch_projection@1", "qkv_rope@1", "vision_ffn@1"},
        "decode",
    ),
    "qwen3_next": ("qwen3_next", 29, DECODER | {"decoder_ffn@1", "gated_delta_core@1"}, "decode"),
    "pi0": (
        "pi05",
        56,
        (DECODER - {"qk_norm_rope@1"}) | {"decoder_ffn@1", "vision_ffn@1", "cadence_static@1"},
        "tick",
    ),
}


@pytest.fixture(scope="module", params=list(HOSTS))
def host(request: pytest.FixtureRequest) -> TinyHost:
    return build(request.param)


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[str, str, str], BindingSpec]:
    """A binding with the first place of some text replaced."""

    def load(name: str, old: str, new: str) -> BindingSpec:
        text = (bindings_root() / f"{name}.yaml").read_text()
        assert old in text
        file = tmp_path / f"{name}.yaml"
        file.write_text(text.replace(old, new, 1))
        return load_binding(file)

    return load


def test_every_path_resolves(host: TinyHost) -> None:
    name, seams, structures, _ = HOSTS[host.name]
    assert host.binding == name
    found = resolve(load_binding(name), host.model)
    assert len(found) == seams
    assert len({seam.id for seam in found}) == seams
    assert {seam.structure for seam in found} == structures


def test_every_reference_gives_the_hosts_own_numbers(host: TinyHost) -> None:
    binding = load_binding(HOSTS[host.name][0])
    proofs = prove(binding, host.model, host.forward)
    assert [p for p in proofs if not p.ok] == []
    assert {p.region for p in proofs} == set(binding.regions)
    assert binding.provisional is None


def test_the_whole_hot_path_is_classified(host: TinyHost) -> None:
    name, _, _, family = HOSTS[host.name]
    pipeline = load_binding(name, require_pipeline_coverage=True).pipeline
    assert pipeline is not None
    covered = [part for segment in pipeline.segments for part in segment.covers]
    assert sorted(covered) == sorted(pipeline.hot_path)
    if family == "decode":
        assert pipeline.spec.id == "autoregressive_decode_pipeline@1"
        assert {"prefill", "decode", "selection"} <= set(pipeline.stages)
    else:
        assert pipeline.spec.id == "vla_tick_pipeline@1"
        assert set(pipeline.windows) == {"observation", "noise"}
        assert pipeline.steps is not None


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("qwen3", "mlp.gate_proj.weight", "mlp.gate.weight", Reason.BINDING),
        ("qwen3_vl", "visual.patch_embed.proj.bias", "visual.patch_embed.bias", Reason.BINDING),
        ("qwen3_next", "slot: torch_recurrent", "slot: torch_recurring", Reason.BINDING),
        ("pi0", "state_proj.weight", "action_in_proj.weightless", Reason.BINDING),
        ("qwen3_next", "self_attn.q_norm.weight", "self_attn.q_proj.weight", Reason.SHAPE),
    ],
)
def test_a_wrong_path_or_slot_is_refused(
    name: str,
    old: str,
    new: str,
    reason: Reason,
    changed: Callable[[str, str, str], BindingSpec],
) -> None:
    bad = changed(HOSTS[name][0], old, new)
    with pytest.raises(InputError) as caught:
        resolve(bad, build(name).model)
    assert reason in {p.reason for p in caught.value.problems}


@pytest.mark.parametrize(
    ("name", "old", "new", "regions"),
    [
        ("qwen3", "mask: causal", "mask: none", {"attention"}),
        ("qwen3", "gain: direct", "gain: offset", {"qk_rope"}),
        (
            "qwen3",
            "qk_norm: per_head, bias: none, activation: silu",
            "qk_norm: per_head, bias: none, activation: gelu_tanh",
            {"block"},
        ),
        ("qwen3_vl", "{axes: [1, 0, 2]}", "{axes: [0, 1, 2]}", {"vision_rope"}),
        ("qwen3_next", "qk_norm: l2", "qk_norm: none", {"delta"}),
        ("qwen3_next", "name: beta", "name: g", {"delta"}),
        ("pi0", "mask: none", "mask: causal", {"vision_attention"}),
    ],
)
def test_a_binding_that_says_something_untrue_is_not_proven(
    name: str,
    old: str,
    new: str,
    regions: set[str],
    changed: Callable[[str, str, str], BindingSpec],
) -> None:
    host = build(name)
    bad = changed(HOSTS[name][0], old, new)
    assert {p.region for p in prove(bad, host.model, host.forward) if not p.ok} == regions


def test_the_llama_host_is_what_smollm2s_binding_says() -> None:
    host = build("llama")
    assert host.binding == "smollm2"
    assert len(resolve(load_binding("smollm2"), host.model)) == 20
    assert host.model.lm_head.weight is host.model.model.embed_tokens.weight
