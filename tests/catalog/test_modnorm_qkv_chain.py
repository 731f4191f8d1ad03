"""modnorm_qkv_chain's reference against diffusers' own norms and blocks."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from diffusers.models.normalization import AdaLayerNormZero, FP32LayerNorm
from diffusers.models.transformers.transformer_wan import WanTransformerBlock
from torch import nn

from flashrt.spec import load, load_reference
from flashrt.spec.reference import Reference
from flashrt_runtime.reason import Reason, Refusal

SELF = {"attention": "self", "norm": "layer_identity", "eps": "1e-06", "bias": "none"}
SIZES = {"B": 2, "T": 3, "D": 8, "Nq": 16, "Nk": 4, "Nv": 6}


@pytest.fixture(scope="module")
def reference() -> Reference:
    return load_reference(load("modnorm_qkv_chain"))


def projections(roles: str, bias: bool) -> tuple[dict[str, nn.Linear], dict[str, torch.Tensor]]:
    made = {role: nn.Linear(32, 16 if role == "q" else 8, bias=bias) for role in roles}
    slots = {role: module.weight.detach() for role, module in made.items()}
    if bias:
        slots |= {f"{role}_bias": module.bias.detach() for role, module in made.items()}
    return made, slots


@torch.no_grad()
def test_it_is_adaptive_layer_norm_and_three_projections(reference: Reference) -> None:
    norm, three = AdaLayerNormZero(32), projections("qkv", bias=True)
    x, emb = torch.randn(2, 5, 32), torch.randn(2, 32)
    modulated = norm(x, emb=emb)[0]
    shift, scale = norm.linear(norm.silu(emb)).chunk(6, dim=1)[:2]
    inputs = {"x": x, "scale": scale[:, None], "shift": shift[:, None]}
    variant = {**SELF, "bias": "present"}
    out = reference.run(inputs, three[1], variant)
    point = reference.points(inputs, three[1], variant)["x_after_modulation"]
    torch.testing.assert_close(point, modulated, rtol=1e-5, atol=1e-5)
    for role, module in three[0].items():
        torch.testing.assert_close(out[role], module(modulated), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("each", [False, True])
@torch.no_grad()
def test_it_is_what_a_wan_block_feeds_its_attention(reference: Reference, each: bool) -> None:
    """The condition is one row for all positions, or one for each (Wan 2.2's TI2V)."""
    torch.manual_seed(0)
    block = WanTransformerBlock(dim=32, ffn_dim=64, num_heads=2, cross_attn_norm=True).eval()
    seen: dict[str, torch.Tensor] = {}
    for role in ("q", "k", "v"):
        layer = getattr(block.attn1, f"to_{role}")
        layer.register_forward_hook(
            lambda module, args, y, role=role: seen.update({role: y, "read": args[0]})
        )
    x, text = torch.randn(2, 5, 32), torch.randn(2, 3, 32)
    temb = torch.randn(2, 5, 6, 32) if each else torch.randn(2, 6, 32)
    table = torch.ones(1, 5, 1, 16), torch.zeros(1, 5, 1, 16)
    block(x, text, temb, table)
    held: Any = block.scale_shift_table.unsqueeze(0) if each else block.scale_shift_table
    shift, scale = (held + temb).unbind(dim=-2)[:2]
    if not each:
        shift, scale = shift[:, None], scale[:, None]
    weights = {role: getattr(block.attn1, f"to_{role}").weight for role in ("q", "k", "v")}
    weights |= {f"{r}_bias": getattr(block.attn1, f"to_{r}").bias for r in ("q", "k", "v")}
    inputs, variant = {"x": x, "scale": scale, "shift": shift}, {**SELF, "bias": "present"}
    out = reference.run(inputs, weights, variant)
    point = reference.points(inputs, weights, variant)["x_after_modulation"]
    torch.testing.assert_close(point, seen["read"], rtol=1e-5, atol=1e-5)
    for role in ("q", "k", "v"):
        torch.testing.assert_close(out[role], seen[role], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("affine", "bias"), product([False, True], [False, True]))
@torch.no_grad()
def test_cross_attention_binds_the_query_alone(
    reference: Reference, affine: bool, bias: bool
) -> None:
    norm = FP32LayerNorm(32, eps=1e-3, elementwise_affine=affine)
    only, slots = projections("q", bias)
    if affine:
        norm.weight.copy_(torch.randn(32))
        norm.bias.copy_(torch.randn(32))
        slots |= {"norm": norm.weight, "norm_bias": norm.bias}
    x, scale, shift = torch.randn(2, 5, 32), torch.randn(2, 5, 32), torch.randn(2, 5, 32)
    variant = {
        "attention": "cross",
        "norm": "layer_affine" if affine else "layer_identity",
        "eps": "1e-3",
        "bias": "present" if bias else "none",
    }
    out = reference.run({"x": x, "scale": scale, "shift": shift}, slots, variant)
    assert set(out) == {"q"}
    expected = only["q"](norm(x) * (1 + scale) + shift)
    torch.testing.assert_close(out["q"], expected, rtol=1e-5, atol=1e-5)


def test_bfloat16_is_computed_in_float32_and_rounded_once(reference: Reference) -> None:
    """The mean is large against the spread: a bfloat16 variance would be lost."""
    x = (100.0 + torch.randn(1, 3, 1024)).bfloat16()
    rows = {n: torch.randn(1, 1, 1024).bfloat16() for n in ("scale", "shift")}
    slots = {r: (torch.randn(8, 1024) / 32).bfloat16() for r in ("q", "k", "v")}
    inputs = {"x": x, **rows}
    got = reference.points(inputs, slots, SELF)["x_after_modulation"]
    wide = {n: t.double() for n, t in inputs.items()}
    exact = nn.functional.layer_norm(wide["x"], (1024,), eps=1e-6)
    exact = exact * (1 + wide["scale"]) + wide["shift"]
    torch.testing.assert_close(got.double(), exact, rtol=2**-8, atol=2**-12)
    assert {t.dtype for t in reference.run(inputs, slots, SELF).values()} == {torch.bfloat16}


def test_leading_dims_are_kept(reference: Reference) -> None:
    _, slots = projections("qkv", bias=False)
    inputs = {"x": torch.randn(2, 3, 5, 32), "scale": torch.randn(2, 3, 1, 32)}
    inputs["shift"] = torch.randn(2, 3, 5, 32)
    flat = {n: t.flatten(0, 1) for n, t in inputs.items()}
    for role, value in reference.run(inputs, slots, SELF).items():
        assert value.shape[:3] == (2, 3, 5)
        assert torch.equal(value.flatten(0, 1), reference.run(flat, slots, SELF)[role])


def test_a_scale_of_some_of_the_positions_is_refused(reference: Reference) -> None:
    _, slots = projections("qkv", bias=False)
    inputs = {"x": torch.randn(2, 5, 32), "scale": torch.randn(2, 3, 32)}
    inputs["shift"] = torch.randn(2, 1, 32)
    with pytest.raises(Refusal, match="scale") as refused:
        reference.run(inputs, slots, SELF)
    assert refused.value.reason is Reason.SHAPE


def test_cost_is_the_count_by_hand(reference: Reference) -> None:
    """6 positions of 8: 7 operations an element, then 26 outputs of 8 products."""
    whole = reference.cost(SIZES, SELF, weight_bytes=1.0, activation_bytes=2.0)
    assert whole.flops == 6 * 8 * 7 + 2 * 6 * 8 * 26
    assert whole.bytes == 8 * 26 + 2 * (6 * 8 + 6 * 26 + 2 * 2 * 8)
    cross = {**SELF, "attention": "cross", "norm": "layer_affine", "bias": "present"}
    query = reference.cost(SIZES, cross, weight_bytes=1.0, activation_bytes=2.0)
    assert query.flops == 6 * 8 * 9 + 2 * 6 * 8 * 16 + 6 * 16
    assert query.bytes == 8 * 16 + 2 * (6 * 8 + 6 * 16 + 2 * 2 * 8 + 2 * 8 + 16)
