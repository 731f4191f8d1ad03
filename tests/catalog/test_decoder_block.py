"""decoder_block's reference against whole decoder layers of transformers, past included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers

from flashrt.spec import load, load_reference
from flashrt.spec.reference import Reference
from flashrt_runtime.reason import Reason, Refusal

NAMES = ("Llama", "Qwen2", "Qwen3", "Gemma")
HEAD = 24  # 4 heads of 24 are wider than the model
SLOTS = {
    "input_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "post_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}


@dataclass(frozen=True)
class Layer:
    """One real layer's weights by slot, its variant, and what it read and gave in two calls."""

    weights: dict[str, torch.Tensor]
    variant: dict[str, str]
    calls: list[dict[str, torch.Tensor]]


def variant_of(name: str, head: int = HEAD) -> dict[str, str]:
    variant = {
        "norm": "rms_offset" if name == "Gemma" else "rms_direct",
        "eps": "1e-05",
        "qk_norm": "per_head" if name == "Qwen3" else "none",
        "bias": "present" if name == "Qwen2" else "none",
        "activation": "gelu_tanh" if name == "Gemma" else "silu",
    }
    return variant if name == "Qwen3" else {**variant, "head_dim": str(head)}


def run_host(name: str, dtype: torch.dtype = torch.float32) -> Layer:
    """A prompt of 5 positions, then 2 more against the cache, through the real model."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(
        num_hidden_layers=2,
        hidden_size=64,
        intermediate_size=96,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=HEAD,
        vocab_size=32,
        rms_norm_eps=1e-5,
        hidden_activation="gelu_pytorch_tanh",
    )
    model = getattr(transformers, f"{name}Model")(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.copy_(torch.randn_like(parameter) / max(parameter.shape[-1], 4) ** 0.5)
    model = model.to(dtype)
    layer, calls = model.layers[1], []

    def seen(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        cos, sin = kwargs["position_embeddings"]
        x = args[0] if args else kwargs["hidden_states"]
        y = output[0] if isinstance(output, tuple) else output
        calls.append({"x": x, "cos": cos.float(), "sin": sin.float(), "y": y})

    layer.register_forward_hook(seen, with_kwargs=True)
    cache = transformers.DynamicCache(config=config)
    for length in (5, 2):
        x = torch.randn(3, length, 64, dtype=dtype)
        model(inputs_embeds=x, past_key_values=cache, use_cache=True)
        held = cache.layers[1]
        calls[-1].update(k=held.keys.transpose(1, 2), v=held.values.transpose(1, 2))
    state = layer.state_dict()
    weights = {slot: state[key] for slot, key in SLOTS.items() if key in state}
    assert set(state) == {SLOTS[slot] for slot in weights}
    return Layer(weights, variant_of(name), calls)


def inputs_of(layer: Layer, call: int) -> dict[str, torch.Tensor]:
    """What the reference is given; the past is what the host's cache held before."""
    inputs = {n: layer.calls[call][n] for n in ("x", "cos", "sin")}
    if call:
        inputs.update({f"past_{n}": layer.calls[call - 1][n] for n in ("k", "v")})
    return inputs


@pytest.fixture(scope="module")
def reference() -> Reference:
    return load_reference(load("decoder_block"))


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_hosts_layer_first_and_with_the_past(reference: Reference, name: str) -> None:
    layer = run_host(name)
    for call, seen in enumerate(layer.calls):
        out = reference.run(inputs_of(layer, call), layer.weights, layer.variant)
        for output in ("y", "k", "v"):
            torch.testing.assert_close(out[output], seen[output], rtol=1e-4, atol=1e-4)
    assert layer.calls[1]["k"].shape == (3, 7, 2, HEAD)


@pytest.mark.parametrize("name", NAMES)
def test_a_bfloat16_layer_is_close_and_its_state_is_bfloat16(
    reference: Reference, name: str
) -> None:
    layer = run_host(name, torch.bfloat16)
    for call, seen in enumerate(layer.calls):
        out = reference.run(inputs_of(layer, call), layer.weights, layer.variant)
        for output in ("y", "k", "v"):
            assert out[output].dtype is torch.bfloat16
            a, b = out[output].double().flatten(), seen[output].double().flatten()
            assert float(a @ b / (a.norm() * b.norm())) > 0.9995


def test_a_call_cut_in_two_is_one_call_bit_for_bit_in_its_state(reference: Reference) -> None:
    layer = run_host("Qwen3", torch.bfloat16)
    inputs = inputs_of(layer, 0)
    whole = reference.run(inputs, layer.weights, layer.variant)
    first, second = ({n: t[:, part] for n, t in inputs.items()} for part in (slice(3), slice(3, 5)))
    head = reference.run(first, layer.weights, layer.variant)
    past = {"past_k": head["k"], "past_v": head["v"]}
    tail = reference.run({**second, **past}, layer.weights, layer.variant)
    torch.testing.assert_close(tail["k"], whole["k"], rtol=0, atol=2**-8)
    torch.testing.assert_close(tail["v"], whole["v"], rtol=0, atol=2**-8)
    torch.testing.assert_close(torch.cat((head["y"], tail["y"]), 1), whole["y"], rtol=0, atol=2**-5)


def test_only_the_first_channels_of_a_head_turn(reference: Reference) -> None:
    """A table of 8 turns 8 of 24 channels, as complex numbers turn; the others stay."""
    layer = run_host("Qwen3")
    inputs = inputs_of(layer, 0)
    half = torch.randn(1, 5, 4)
    angles = half.repeat(1, 1, 2)
    part = {"x": inputs["x"], "cos": angles.cos(), "sin": angles.sin()}
    got = reference.run(part, layer.weights, layer.variant)["k"]
    still = {"x": inputs["x"], "cos": torch.ones(1, 5, 24), "sin": torch.zeros(1, 5, 24)}
    plain = reference.run(still, layer.weights, layer.variant)["k"]
    assert torch.equal(got[..., 8:], plain[..., 8:])
    pairs = torch.view_as_complex(torch.stack((plain[..., :4], plain[..., 4:8]), dim=-1))
    turned = pairs * torch.polar(torch.ones_like(half), half)[:, :, None]
    torch.testing.assert_close(got[..., :4], turned.real)
    torch.testing.assert_close(got[..., 4:8], turned.imag)


def test_one_half_of_the_past_is_refused(reference: Reference) -> None:
    layer = run_host("Llama")
    inputs = inputs_of(layer, 1)
    del inputs["past_v"]
    with pytest.raises(Refusal, match="past_v") as refused:
        reference.run(inputs, layer.weights, layer.variant)
    assert refused.value.reason is Reason.BINDING
    with pytest.raises(ValueError, match="together"):
        reference.function(inputs, layer.weights, layer.variant)


def test_a_host_without_head_norms_must_say_its_heads_width(reference: Reference) -> None:
    """Four heads of 24 and two of 48 have projections of one shape."""
    layer = run_host("Llama")
    variant = {n: v for n, v in layer.variant.items() if n != "head_dim"}
    with pytest.raises(Refusal, match="head_dim") as refused:
        reference.run(inputs_of(layer, 0), layer.weights, variant)
    assert refused.value.reason is Reason.BINDING
    other = reference.run(inputs_of(layer, 0), layer.weights, {**variant, "head_dim": "48"})
    assert other["k"].shape == (3, 5, 1, 48)


@pytest.mark.parametrize(("width", "what"), [(23, "2 divides R"), (26, "R <= Dh")])
def test_a_table_that_does_not_fit_a_head_is_refused(
    reference: Reference, width: int, what: str
) -> None:
    layer = run_host("Qwen3")
    table = torch.ones(1, 5, width)
    inputs = {"x": layer.calls[0]["x"], "cos": table, "sin": table}
    with pytest.raises(Refusal, match=what) as refused:
        reference.run(inputs, layer.weights, layer.variant)
    assert refused.value.reason is Reason.SHAPE


def test_cost_is_the_count_by_hand(reference: Reference) -> None:
    """2 rows of 3 new positions over 5 past ones: 6 tokens, 15 + 6 pairs a head."""
    sizes = {"B": 2, "T": 3, "Tp": 5, "D": 8, "F": 16, "Hq": 4, "Hkv": 2, "G": 2, "Dh": 4, "R": 2}
    plain = reference.cost(sizes, variant_of("Llama", 4), weight_bytes=1.0)
    matrices = 16 * 8 + 2 * 8 * 8 + 8 * 16 + 3 * 8 * 16
    norms_and_residuals, product, rotation = 6 * 8 * 10, 6 * 16 * 8, 6 * 6 * 2 * 3
    attention = 2 * 4 * (15 + 6) * (2 * 4 + 2 * 4 + 5)
    assert plain.flops == 2 * 6 * matrices + norms_and_residuals + product + rotation + attention
    state = 2 * 2 * (5 + 3) * 2 * 4
    assert plain.bytes == matrices + 4 * (2 * 6 * 8 + state + 2 * 8) + 4 * 2 * 3 * 2
    normed = reference.cost(sizes, variant_of("Qwen3", 4), weight_bytes=1.0)
    assert normed.flops - plain.flops == 6 * 6 * 4 * 4
    assert normed.bytes - plain.bytes == 4 * 2 * 4
    biased = reference.cost(sizes, variant_of("Qwen2", 4), weight_bytes=1.0)
    assert biased.flops - plain.flops == 6 * 32
    assert biased.bytes - plain.bytes == 4 * 32
