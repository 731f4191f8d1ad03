"""Fusions through the doors: packed projections and whole patches, in the host's own dtype."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import flashrt as structures
from flashrt_runtime import swap

WIDTH = 64


class Patches(nn.Module):
    """A Conv3d that is given one whole patch a row."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Conv3d(3, 32, (2, 4, 4), stride=(2, 4, 4), bias=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[rows, 96] -> [rows, 32]``."""
        volume = x.view(-1, 3, 2, 4, 4).to(self.proj.weight.dtype)
        return self.proj(volume).view(-1, 32)


class Seen(nn.Module):
    """Patches, then a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = Patches()
        self.head = nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[rows, 96] -> [rows, 16]``."""
        return self.head(torch.nn.functional.gelu(self.patches(x)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scheme", ["none", "bf16_structural"])
def test_whole_patches_are_one_product(dtype: torch.dtype, scheme: str) -> None:
    torch.manual_seed(0)
    model = Seen().eval().requires_grad_(False).to(dtype)
    x = torch.randn(5, 96).to(dtype)
    expected = model(x)
    plan = structures.auto_swaps(model, lambda: model(x), scheme=scheme)
    assert {s.seam.structure for s in plan.swaps} == {"patch_projection@1"}
    handle = swap.attach(model, plan.swaps, on_guard_fail="raise")
    seen = model(x)
    assert handle.summary()["clean"]
    assert seen.dtype == dtype
    assert torch.nn.functional.cosine_similarity(seen.float(), expected.float()).min() > 0.9999
    handle.detach()
    assert torch.equal(model(x), expected)


@pytest.mark.parametrize("scheme", ["none", "bf16_structural"])
@pytest.mark.parametrize(("dtype", "impl"), [("bfloat16", "cpu_bf16"), ("float16", "cpu_fp16")])
def test_a_half_precision_host_gets_its_packed_projections(
    llama, scheme: str, dtype: str, impl: str
) -> None:
    model = llama().to(getattr(torch, dtype))
    tokens = torch.arange(8)[None]
    expected = model(tokens).logits
    plan = structures.auto_swaps(model, lambda: model(tokens), scheme=scheme)
    bound = plan.precision_spec.bound
    assert {seam.impl for seam in bound.values()} == {(impl, "general")}
    assert {w.dtype for seam in bound.values() for w in seam.weights.values()} == {dtype}
    handle = swap.attach(model, plan.swaps, on_guard_fail="raise")
    seen = model(tokens).logits
    assert handle.summary()["clean"]
    gap = torch.nn.functional.cosine_similarity(seen.float(), expected.float(), dim=-1)
    assert float(gap.min()) > 0.999
    handle.detach()
    assert torch.equal(model(tokens).logits, expected)


def test_four_bit_feed_forwards_leave_the_projections_to_the_pack(llama) -> None:
    model = llama()
    tokens = torch.arange(8)[None]
    expected = model(tokens).logits
    plan = structures.auto_swaps(model, lambda: model(tokens), scheme="w4a16_decode")
    assert {s.seam.structure for s in plan.swaps} == {"decoder_ffn@1", "qkv_pack@1"}
    ffn = plan.precision_spec.bound["model.layers.0.mlp"]
    assert {(w.dtype, w.granularity) for w in ffn.weights.values()} == {("nvfp4", "block_16")}
    handle = swap.attach(model, plan.swaps, on_guard_fail="raise")
    seen = model(tokens).logits
    assert handle.summary()["clean"]
    assert float(torch.nn.functional.cosine_similarity(seen, expected, dim=-1).min()) > 0.97
    model(torch.arange(20)[None])
    report = handle.report()["model.layers.0.mlp"]
    assert (report.calls, report.dispatched) == (1, 1), "prefill is the host's, and counted"
    handle.detach()
    assert torch.equal(model(tokens).logits, expected)
