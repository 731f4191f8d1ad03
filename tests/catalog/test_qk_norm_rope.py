"""qk_norm_rope against the norms and rotary functions of real decoders and complex products."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.olmo2 import modeling_olmo2 as olmo2
from transformers.models.qwen3 import modeling_qwen3 as qwen3
from transformers.models.qwen3_next import modeling_qwen3_next as qwen3_next

from flashrt.spec import load, load_reference
from flashrt.spec.reference import Reference
from flashrt_runtime.reason import Reason, Refusal

HQ, HKV, DH, T = 4, 2, 8, 5
HEAD = {"norm": "per_head", "gain": "direct", "eps": "0.001"}
WIDE = {**HEAD, "norm": "projection", "head_dim": str(DH)}


@pytest.fixture(scope="module")
def rope() -> Reference:
    return load_reference(load("qk_norm_rope"))


def table(batch: int, rotary: int, tokens: int = T) -> dict[str, torch.Tensor]:
    angle = torch.rand(batch, tokens, rotary // 2).mul(6).repeat(1, 1, 2)
    return {"cos": angle.cos(), "sin": angle.sin()}


def drawn(*lead: int, rotary: int = DH, tables: int = 1) -> dict[str, torch.Tensor]:
    heads = {"q": HQ, "k": HKV, "v": HKV}
    given = {name: torch.randn(*lead, T, n * DH) for name, n in heads.items()}
    return given | table(tables, rotary)


def host(module: Any, norms: list[Any], inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Queries and keys [B, T, H, Dh] as the host's own norm and rotary function make them."""
    wide = norms[0].weight.numel() != DH
    states = []
    for norm, name in zip(norms, "qk", strict=True):
        x = inputs[name]
        x = norm(x).unflatten(-1, (-1, DH)) if wide else norm(x.unflatten(-1, (-1, DH)))
        states.append(x.transpose(1, 2))
    rotated = module.apply_rotary_pos_emb(*states, inputs["cos"], inputs["sin"])
    return [x.transpose(1, 2) for x in rotated]


def norms(kind: Any, *widths: int) -> list[Any]:
    made = [kind(width, eps=1e-3).requires_grad_(False) for width in widths]
    for norm in made:
        norm.weight.copy_(torch.randn(norm.weight.shape))
    return made


@pytest.mark.parametrize("tables", [1, 3])
@pytest.mark.parametrize(
    ("name", "gain", "rotary"),
    [("Qwen3", "direct", DH), ("Qwen3Next", "offset", DH // 4), ("Qwen3Next", "offset", DH // 2)],
)
def test_per_head_norms_and_a_whole_or_partial_rotation_are_the_hosts(
    rope: Reference, name: str, gain: str, rotary: int, tables: int
) -> None:
    module = {"Qwen3": qwen3, "Qwen3Next": qwen3_next}[name]
    kind = getattr(module, f"{name}RMSNorm")
    inputs = drawn(3, rotary=rotary, tables=tables)
    held = norms(kind, DH, DH)
    weights = {"q_norm": held[0].weight, "k_norm": held[1].weight}
    out = rope.run(inputs, weights, {**HEAD, "gain": gain})
    for state, expected in zip("qk", host(module, held, inputs), strict=True):
        torch.testing.assert_close(out[state], expected)
    assert torch.equal(out["v"], inputs["v"].unflatten(-1, (HKV, DH)))


def test_a_norm_over_the_projection_is_olmo2s(rope: Reference) -> None:
    inputs = drawn(2, tables=2)
    held = norms(olmo2.Olmo2RMSNorm, HQ * DH, HKV * DH)
    weights = {"q_norm_wide": held[0].weight, "k_norm_wide": held[1].weight}
    out = rope.run(inputs, weights, WIDE)
    for name, expected in zip("qk", host(olmo2, held, inputs), strict=True):
        torch.testing.assert_close(out[name], expected)


@pytest.mark.parametrize("tables", [1, 6])
def test_more_leading_dims_are_rows(rope: Reference, tables: int) -> None:
    inputs = drawn(2, 3, rotary=4, tables=tables)
    weights = {"q_norm": torch.rand(DH), "k_norm": torch.rand(DH)}
    flat = {n: x.flatten(0, 1) if n in ("q", "k", "v") else x for n, x in inputs.items()}
    expected = rope.run(flat, weights, HEAD)
    for name, got in rope.run(inputs, weights, HEAD).items():
        assert torch.equal(got.flatten(0, 1), expected[name])
        assert got.shape[:3] == (2, 3, T)


def test_a_bfloat16_boundary_is_one_rounding_of_the_complex_product(rope: Reference) -> None:
    """Rotate-half pairs channel i with i + R/2: one complex number times exp(i * angle)."""
    inputs = drawn(2, rotary=6)
    inputs |= {n: inputs[n].bfloat16() for n in "qkv"}
    weights = {n: torch.rand(DH).bfloat16() for n in ("q_norm", "k_norm")}
    out = rope.run(inputs, weights, HEAD)
    unit = torch.complex(inputs["cos"].double(), inputs["sin"].double())[..., None, :3]
    for name in "qk":
        x = inputs[name].double().unflatten(-1, (-1, DH))
        x = x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt() * weights[f"{name}_norm"].double()
        rotated = torch.complex(x[..., :3], x[..., 3:6]) * unit
        exact = torch.cat([rotated.real, rotated.imag, x[..., 6:]], dim=-1)
        assert out[name].dtype is torch.bfloat16
        torch.testing.assert_close(out[name].double(), exact, rtol=2**-8, atol=1e-5)
    assert out["v"].dtype is torch.bfloat16


def test_each_contradiction_is_refused(rope: Reference) -> None:
    weights = {"q_norm": torch.rand(DH), "k_norm": torch.rand(DH)}

    def refused(change: dict[str, torch.Tensor], says: str) -> None:
        with pytest.raises(Refusal, match=says) as caught:
            rope.run(drawn(2) | change, weights, HEAD)
        assert caught.value.reason is Reason.SHAPE

    three = torch.randn(2, T, 3 * DH)
    refused({"k": three, "v": three}, "Hq")
    refused({"v": three}, "Hkv")
    refused(table(1, DH + 2), "R")
    refused({n: t[..., :3] for n, t in table(1, DH).items()}, "R")
    refused(table(3, DH), "B")


def test_a_norm_over_the_projection_needs_the_heads_width(rope: Reference) -> None:
    weights = {"q_norm_wide": torch.rand(HQ * DH), "k_norm_wide": torch.rand(HKV * DH)}
    missing = {n: v for n, v in WIDE.items() if n != "head_dim"}
    with pytest.raises(Refusal, match="head_dim") as caught:
        rope.run(drawn(2), weights, missing)
    assert caught.value.reason is Reason.BINDING
    for wrong, says in (("4", "variant head_dim says Dh = 4, cos"), ("64", "Hq would be 1/2")):
        with pytest.raises(Refusal, match=says) as caught:
            rope.run(drawn(2), weights, {**WIDE, "head_dim": wrong})
        assert caught.value.reason is Reason.SHAPE


def test_cost_is_the_hand_count(rope: Reference) -> None:
    sizes = {"B": 2, "T": 3, "Hq": 4, "Hkv": 2, "G": 2, "Dh": 8, "R": 6}
    heads = 2 * 3 * (4 + 2)
    per_head = rope.cost(sizes, HEAD)
    # 4 steps of a norm per channel; two products and a sum per rotated channel
    assert per_head.flops == heads * (4 * 8 + 3 * 6)
    # queries and keys in and out, two gains of 8, and one table of cosines and of sines
    assert per_head.bytes == 4 * (2 * heads * 8 + 2 * 8 + 2 * 3 * 6)
    wide = rope.cost(sizes, WIDE, 1.0, 2.0)
    assert wide.flops == per_head.flops
    assert wide.bytes == 2 * (2 * heads * 8 + 6 * 8) + 4 * (2 * 3 * 6)
