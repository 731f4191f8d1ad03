"""The catalog's references against a real host's modules and against independent formulas."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.spec import load, load_reference
from flashrt.spec.harness import Case, Slots, draw
from flashrt.spec.reference import Reference
from flashrt.spec.trial import try_reference

NAMES = ("decoder_ffn", "linear_proj", "qkv_pack")
HOST = {"norm": "host", "activation": "silu", "residual": "host", "modulation": "none"}


def reference_of(name: str) -> Reference:
    return load_reference(load(name))


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_every_reference_runs_on_drawn_cases(name: str) -> None:
    assert try_reference(load(name)) == []


@pytest.mark.parametrize("rows", [(1, 1), (1, 7), (3, 5)])
def test_decoder_ffn_is_what_the_host_computes(llama: Any, rows: tuple[int, int]) -> None:
    mlp = llama.model.layers[0].mlp
    x = torch.randn(*rows, 64)
    weights = {
        "gate": mlp.gate_proj.weight,
        "up": mlp.up_proj.weight,
        "down": mlp.down_proj.weight,
    }
    seen: dict[str, torch.Tensor] = {}
    handle = mlp.down_proj.register_forward_pre_hook(lambda m, args: seen.update(down=args[0]))
    with torch.no_grad():
        expected = mlp(x)
    handle.remove()
    reference = reference_of("decoder_ffn")
    close(reference.run({"x": x}, weights, HOST)["y"], expected)
    points = reference.points({"x": x}, weights, HOST)
    close(points["x_after_norm"], x)
    close(points["act_after_mul"], seen["down"])


def test_decoder_ffn_with_norm_and_residual_is_the_hosts_half_layer(llama: Any) -> None:
    layer = llama.model.layers[1]
    with torch.no_grad():
        layer.post_attention_layernorm.weight.copy_(torch.linspace(0.5, 2.0, 64))
        x = torch.randn(2, 3, 64)
        expected = x + layer.mlp(layer.post_attention_layernorm(x))
    weights = {
        "norm": layer.post_attention_layernorm.weight,
        "gate": layer.mlp.gate_proj.weight,
        "up": layer.mlp.up_proj.weight,
        "down": layer.mlp.down_proj.weight,
    }
    variant = {**HOST, "norm": "rms_direct", "eps": "1e-05", "residual": "add"}
    reference = reference_of("decoder_ffn")
    close(reference.run({"x": x, "residual": x}, weights, variant)["y"], expected)
    offset = {**weights, "norm": weights["norm"] - 1.0}
    variant["norm"] = "rms_offset"
    close(reference.run({"x": x, "residual": x}, offset, variant)["y"], expected)


def test_qkv_pack_and_linear_proj_are_what_the_host_computes(llama: Any) -> None:
    attn = llama.model.layers[0].self_attn
    x = torch.randn(1, 4, 64)
    weights = {r: getattr(attn, f"{r}_proj").weight for r in ("q", "k", "v")}
    out = reference_of("qkv_pack").run({"x": x}, weights, {"bias": "none"})
    for role in ("q", "k", "v"):
        close(out[role], getattr(attn, f"{role}_proj")(x))
    variant = {"bias": "none", "epilogue": "none"}
    for module in (attn.o_proj, llama.lm_head):
        got = reference_of("linear_proj").run({"x": x}, {"weight": module.weight}, variant)
        close(got["y"], module(x))


def test_biases_are_added() -> None:
    linear = torch.nn.Linear(16, 24)
    x = torch.randn(3, 16)
    variant = {"bias": "present", "epilogue": "none"}
    weights = {"weight": linear.weight, "bias": linear.bias}
    close(reference_of("linear_proj").run({"x": x}, weights, variant)["y"], linear(x))
    three = {r: torch.nn.Linear(16, n) for r, n in (("q", 16), ("k", 8), ("v", 8))}
    held = {r: m.weight for r, m in three.items()} | {f"{r}_bias": m.bias for r, m in three.items()}
    out = reference_of("qkv_pack").run({"x": x}, held, {"bias": "present"})
    for role, module in three.items():
        close(out[role], module(x))


def by_hand(case: Case) -> torch.Tensor:
    """decoder_ffn in float64, written from its sentence."""
    i = {n: t.double() for n, t in case.inputs.items()}
    w = {n: t.double() for n, t in case.weights.items()}
    v = case.variant
    x = i["x"]
    if v["norm"] != "host":
        rms = (x.pow(2).sum(-1, keepdim=True) / x.shape[-1] + float(v["eps"])).sqrt()
        x = x / rms * (w["norm"] if v["norm"] == "rms_direct" else 1 + w["norm"])
    if v["modulation"] == "adaln":
        x = x + x * i["ada_scale"] + i["ada_shift"]
    g = x @ w["gate"].T + w.get("gate_bias", 0)
    u = x @ w["up"].T + w.get("up_bias", 0)
    if v["activation"] == "silu":
        a = g / (1 + torch.exp(-g))
    else:
        a = 0.5 * g * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (g + 0.044715 * g**3)))
    y = (a * u) @ w["down"].T + w.get("down_bias", 0)
    if v["modulation"] == "adaln":
        y = y * i["ada_gate"]
    return y + i["residual"] if v["residual"] == "add" else y


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000))
def test_decoder_ffn_in_every_variant_is_its_sentence(seed: int) -> None:
    reference = reference_of("decoder_ffn")
    case = next(draw(reference.spec, 1, seed=seed))
    got = reference.run(case.inputs, case.weights, case.variant)["y"]
    torch.testing.assert_close(got.double(), by_hand(case), rtol=1e-4, atol=1e-5)


def test_statistics_are_float32_at_any_boundary_dtype() -> None:
    """A bfloat16 sum of squares over 4096 elements is off by far more than this allows."""
    reference = reference_of("decoder_ffn")
    only = {"norm": ["rms_direct"], "residual": ["host"], "modulation": ["none"]}
    sizes = {"D": [4096], "F": [16], "M": [2]}
    case = next(draw(reference.spec, 1, variants=only, sizes=sizes, dtype=torch.bfloat16))
    got = reference.points(case.inputs, case.weights, case.variant)["x_after_norm"]
    assert got.dtype is torch.bfloat16
    wide = case.inputs["x"].double()
    exact = wide * wide.square().mean(-1, keepdim=True).rsqrt() * case.weights["norm"].double()
    assert float(((got.double() - exact).abs() / exact.abs().clamp_min(1e-3)).max()) < 2**-8


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_costs_grow_with_rows_and_shrink_with_narrow_weights(name: str, seed: int) -> None:
    reference = reference_of(name)
    case = next(draw(reference.spec, 1, seed=seed, slots=Slots.NONE))
    one = reference.cost({**case.dims, "M": 1}, case.variant)
    two = reference.cost({**case.dims, "M": 2}, case.variant)
    narrow = reference.cost({**case.dims, "M": 1}, case.variant, weight_bytes=1.0)
    assert two.flops == 2 * one.flops
    assert one.bytes < two.bytes < 2 * one.bytes
    assert narrow.flops == one.flops
    elements = sum(w.numel() for w in case.weights.values() if w.ndim == 2)
    assert one.bytes - narrow.bytes == 3.0 * elements
    assert one.flops >= 2.0 * elements


def test_gates_are_the_bands_of_each_kind_of_output() -> None:
    values = {n: dict(load(n).gates.bands) for n in NAMES}
    assert all(bands == {"pass": 0.999, "warn": 0.995} for bands in values.values())
    pipeline = load("autoregressive_decode_pipeline").gates
    assert (pipeline.metric, dict(pipeline.bands)) == (
        "top1_agreement",
        {"pass": 0.95, "warn": 0.85},
    )
    assert {load(n).gates.margin for n in (*NAMES, "autoregressive_decode_pipeline")} == {1.02}
