"""norm_fused against torch's norms and the norms of real hosts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers.models.normalization import FP32LayerNorm
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextRMSNorm

from flashrt.spec import load, load_reference
from flashrt.spec.reference import Reference
from flashrt_runtime.reason import Reason, Refusal

D = 24
NORMS = {
    "torch RMSNorm": ("rms_direct", torch.nn.RMSNorm(D, eps=1e-3)),
    "Qwen3RMSNorm": ("rms_direct", Qwen3RMSNorm(D, eps=1e-3)),
    "Gemma3RMSNorm": ("rms_offset", Gemma3RMSNorm(D, eps=1e-3)),
    "Qwen3NextRMSNorm": ("rms_offset", Qwen3NextRMSNorm(D, eps=1e-3)),
    "torch LayerNorm": ("layer_affine", torch.nn.LayerNorm(D, eps=1e-3)),
    "FP32LayerNorm": ("layer_affine", FP32LayerNorm(D, eps=1e-3)),
    "FP32LayerNorm, no affine": (
        "layer_identity",
        FP32LayerNorm(D, eps=1e-3, elementwise_affine=False),
    ),
}


@pytest.fixture(scope="module")
def norm() -> Reference:
    return load_reference(load("norm_fused"))


def stirred(module: Any) -> dict[str, torch.Tensor]:
    source = torch.Generator().manual_seed(0)
    for tensor in module.parameters():
        tensor.data = torch.randn(tensor.shape, generator=source)
    return {name: tensor.data for name, tensor in module.named_parameters()}


@pytest.mark.parametrize("lead", [(1,), (5,), (2, 3)])
@pytest.mark.parametrize("host", NORMS)
def test_it_is_the_hosts_norm(norm: Reference, host: str, lead: tuple[int, ...]) -> None:
    kind, module = NORMS[host]
    weights = stirred(module)
    x, residual = torch.randn(2, *lead, D)
    variant = {"norm": kind, "eps": "0.001", "residual": "none"}
    with torch.no_grad():
        alone, added = module(x), module(x + residual)
    out = norm.run({"x": x}, weights, variant)
    assert list(out) == ["y"]
    torch.testing.assert_close(out["y"], alone)
    variant["residual"] = "add"
    inputs = {"x": x, "residual": residual}
    out = norm.run(inputs, weights, variant)
    assert torch.equal(out["sum"], x + residual)
    torch.testing.assert_close(out["y"], added)
    assert torch.equal(norm.points(inputs, weights, variant)["y"], out["y"])


@pytest.mark.parametrize(("kind", "shift"), [("rms_direct", 0.0), ("layer_identity", 1000.0)])
def test_statistics_survive_wide_rows_and_a_large_mean(
    norm: Reference, kind: str, shift: float
) -> None:
    """E[x²] - E[x]² in float32 would lose the variance under a mean of 1000."""
    x = shift + torch.randn(3, 4096)
    weights = {"weight": torch.rand(4096)} if kind == "rms_direct" else {}
    got = norm.run({"x": x}, weights, {"norm": kind, "eps": "0", "residual": "none"})["y"]
    wide = x.double()
    wide = wide - wide.mean(-1, keepdim=True) if shift else wide
    exact = wide / wide.square().mean(-1, keepdim=True).sqrt() * weights.get("weight", 1.0)
    assert got.dtype is torch.float32
    torch.testing.assert_close(got.double(), exact, rtol=1e-4, atol=1e-4)


def test_a_low_precision_norm_is_refused_at_the_boundary(norm: Reference) -> None:
    spec = norm.spec
    assert {t.dtype for t in (*spec.inputs.values(), *spec.outputs.values())} == {"float32"}
    variant = {"norm": "layer_identity", "residual": "none"}
    for dtype in (torch.bfloat16, torch.float16):
        with pytest.raises(Refusal, match="not float32") as caught:
            norm.run({"x": torch.randn(2, 8, dtype=dtype)}, {}, variant)
        assert caught.value.reason is Reason.DTYPE


def test_a_weight_without_a_bias_is_no_layer_norm(norm: Reference) -> None:
    variant = {"norm": "layer_affine", "residual": "none"}
    with pytest.raises(Refusal, match="bias") as caught:
        norm.run({"x": torch.randn(2, 8)}, {"weight": torch.ones(8)}, variant)
    assert caught.value.reason is Reason.BINDING


@pytest.mark.parametrize(
    ("kind", "each", "vectors"),
    [("rms_direct", 4, 1), ("rms_offset", 4, 1), ("layer_affine", 7, 2), ("layer_identity", 5, 0)],
)
def test_cost_is_the_hand_count(norm: Reference, kind: str, each: int, vectors: int) -> None:
    sizes = {"M": 2, "D": 3}
    alone = norm.cost(sizes, {"norm": kind, "residual": "none"})
    assert alone.flops == each * 6
    assert alone.bytes == 4 * (3 * vectors + 6 + 6)
    added = norm.cost(sizes, {"norm": kind, "residual": "add"}, 1.0, 2.0)
    assert added.flops == (each + 1) * 6
    # x and residual in, y and sum out
    assert added.bytes == 2 * (3 * vectors + 4 * 6)
