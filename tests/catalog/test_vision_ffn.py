"""vision_ffn against the feed-forward halves of real vision layers and against its sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import Dinov2Config, Qwen3VLConfig, SiglipVisionConfig
from transformers.models.dinov2.modeling_dinov2 import Dinov2Layer
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionMLP
from transformers.models.siglip.modeling_siglip import SiglipEncoderLayer

from flashrt.spec import load, load_reference
from flashrt.spec.reference import Reference
from flashrt_runtime.reason import Reason, Refusal

LEADING = [(1,), (5,), (2, 3)]
BARE = {"norm": "host", "activation": "gelu_erf", "layer_scale": "none", "residual": "host"}


@pytest.fixture(scope="module")
def ffn() -> Reference:
    return load_reference(load("vision_ffn"))


def stirred(module: torch.nn.Module, seed: int = 0) -> Any:
    """The module with every parameter random, so that no gain is 1 and no bias 0."""
    source = torch.Generator().manual_seed(seed)
    for tensor in module.parameters():
        tensor.data = 0.3 * torch.randn(tensor.shape, generator=source)
    return module.eval().requires_grad_(False)


def slots(fc1: Any, fc2: Any, norm: Any = None) -> dict[str, torch.Tensor]:
    held = {"fc1": fc1.weight, "fc1_bias": fc1.bias, "fc2": fc2.weight, "fc2_bias": fc2.bias}
    return held if norm is None else {**held, "norm": norm.weight, "norm_bias": norm.bias}


@pytest.mark.parametrize("lead", LEADING)
def test_it_is_the_second_half_of_a_dinov2_layer(ffn: Reference, lead: tuple[int, ...]) -> None:
    layer = stirred(Dinov2Layer(Dinov2Config(hidden_size=24, num_attention_heads=2, mlp_ratio=2)))
    x = torch.randn(*lead, 24)
    seen: dict[str, torch.Tensor] = {}
    for name in ("fc1", "fc2"):
        module = getattr(layer.mlp, name)
        module.register_forward_pre_hook(lambda _m, args, name=name: seen.update({name: args[0]}))
    expected = layer.layer_scale2(layer.mlp(layer.norm2(x))) + x
    weights = slots(layer.mlp.fc1, layer.mlp.fc2, layer.norm2)
    weights["layer_scale"] = layer.layer_scale2.lambda1
    variant = {
        "norm": "layer_affine",
        "eps": "1e-06",
        "activation": "gelu_erf",
        "layer_scale": "present",
        "residual": "add",
    }
    inputs = {"x": x, "residual": x}
    torch.testing.assert_close(ffn.run(inputs, weights, variant)["y"], expected)
    points = ffn.points(inputs, weights, variant)
    torch.testing.assert_close(points["x_after_norm"], seen["fc1"])
    torch.testing.assert_close(points["act_after_gelu"], seen["fc2"])


@pytest.mark.parametrize("lead", LEADING)
def test_it_is_a_qwen3_vl_vision_mlp_and_half_a_siglip_layer(
    ffn: Reference, lead: tuple[int, ...]
) -> None:
    vision = Qwen3VLConfig(vision_config={"hidden_size": 16, "intermediate_size": 40})
    mlp = stirred(Qwen3VLVisionMLP(vision.vision_config))
    x = torch.randn(*lead, 16)
    variant = {**BARE, "activation": "gelu_tanh"}
    weights = slots(mlp.linear_fc1, mlp.linear_fc2)
    torch.testing.assert_close(ffn.run({"x": x}, weights, variant)["y"], mlp(x))

    sizes = {"hidden_size": 16, "intermediate_size": 40, "num_attention_heads": 2}
    layer = stirred(SiglipEncoderLayer(SiglipVisionConfig(**sizes, layer_norm_eps=1e-5)))
    expected = x + layer.mlp(layer.layer_norm2(x))
    weights = slots(layer.mlp.fc1, layer.mlp.fc2, layer.layer_norm2)
    variant |= {"norm": "layer_affine", "eps": "1e-05", "residual": "add"}
    torch.testing.assert_close(ffn.run({"x": x, "residual": x}, weights, variant)["y"], expected)


def test_an_identity_norm_normalises_and_nothing_else(ffn: Reference) -> None:
    fc1, fc2 = (stirred(torch.nn.Linear(12, 12), seed) for seed in (1, 2))
    norm = torch.nn.LayerNorm(12, eps=0.5, elementwise_affine=False)
    x = torch.randn(4, 12)
    expected = fc2(torch.nn.functional.gelu(fc1(norm(x))))
    variant = {**BARE, "norm": "layer_identity", "eps": "0.5"}
    torch.testing.assert_close(ffn.run({"x": x}, slots(fc1, fc2), variant)["y"], expected)


def test_statistics_are_float32_at_a_bfloat16_boundary(ffn: Reference) -> None:
    """Mean 100 and deviation 1: bfloat16 statistics could not tell the rows' values apart."""
    x = (100 + torch.randn(3, 2048)).bfloat16()
    weights = {
        n: t.bfloat16()
        for n, t in slots(*(torch.nn.Linear(2048, 8), torch.nn.Linear(8, 2048))).items()
    }
    weights |= {"norm": torch.rand(2048).bfloat16(), "norm_bias": torch.randn(2048).bfloat16()}
    variant = {**BARE, "norm": "layer_affine", "eps": "1e-06"}
    got = ffn.points({"x": x}, weights, variant)["x_after_norm"]
    wide = [t.double() for t in (x, weights["norm"], weights["norm_bias"])]
    exact = torch.nn.functional.layer_norm(wide[0], (2048,), wide[1], wide[2], 1e-6)
    assert got.dtype is torch.bfloat16
    torch.testing.assert_close(got.double(), exact, rtol=2**-8, atol=1e-4)
    assert ffn.run({"x": x}, weights, variant)["y"].dtype is torch.bfloat16


@pytest.mark.parametrize("missing", ["norm_bias", "fc1_bias", "fc2_bias"])
def test_a_one_sided_norm_and_a_missing_bias_are_refused(ffn: Reference, missing: str) -> None:
    layers = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)
    weights = slots(*layers)
    del weights[missing]
    variant = {**BARE, "norm": "layer_affine"}
    with pytest.raises(Refusal, match=missing) as caught:
        ffn.run({"x": torch.randn(2, 8)}, weights, variant)
    assert caught.value.reason is Reason.BINDING


def test_cost_is_the_hand_count(ffn: Reference) -> None:
    sizes = {"M": 2, "D": 3, "F": 5}
    bare = ffn.cost(sizes, BARE)
    # two products of 2 * 2 * 15; one addition per bias element and row; 5 steps of an exact gelu
    assert bare.flops == 2 * (2 * 2 * 15) + 2 * (5 + 3) + 2 * 5 * 5
    # both matrices, both biases, x and y
    assert bare.bytes == 4 * (15 + 15 + 5 + 3 + 6 + 6)
    full = {
        "norm": "layer_affine",
        "activation": "gelu_tanh",
        "layer_scale": "present",
        "residual": "add",
    }
    every = ffn.cost(sizes, full)
    # 3 more for a tanh gelu; 7 for the norm, 1 for the scale, 1 for the residual
    assert every.flops == bare.flops + 3 * 2 * 5 + (7 + 1 + 1) * 2 * 3
    # gain, bias and scale of 3 and the residual
    assert every.bytes == bare.bytes + 4 * (3 + 3 + 3 + 6)
    narrow = ffn.cost(sizes, full, weight_bytes=1.0, activation_bytes=2.0)
    assert narrow.bytes == 30 + 2 * (5 + 3 + 9 + 18)
