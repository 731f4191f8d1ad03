"""qkv_rope against Qwen3-VL's vision attention and complex products."""

from __future__ import annotations

import pytest
import torch
from transformers.models.qwen3_vl.modeling_qwen3_vl import apply_rotary_pos_emb_vision

from flashrt.spec import load, load_reference
from flashrt.spec.reference import Reference
from flashrt_runtime.reason import Reason, Refusal

PRESENT = {"bias": "present"}
NONE = {"bias": "none"}


@pytest.fixture(scope="module")
def rope() -> Reference:
    return load_reference(load("qkv_rope"))


def table(*shape: int) -> dict[str, torch.Tensor]:
    half = torch.rand(*shape[:-1], shape[-1] // 2).mul(6)
    angle = torch.cat([half, half], dim=-1)
    return {"cos": angle.cos(), "sin": angle.sin()}


@pytest.mark.parametrize("width", [2, 72, 256])
def test_it_is_what_qwen3_vls_vision_attention_does_to_its_packed_product(
    rope: Reference, width: int
) -> None:
    heads, tokens = 3, 7
    linear = torch.nn.Linear(16, 3 * heads * width).requires_grad_(False)
    x, tables = torch.randn(tokens, 16), table(tokens, width)
    packed = linear(x)
    states = packed.reshape(tokens, 3, heads, -1).permute(1, 0, 2, 3).unbind(0)
    expected = dict(zip("qk", apply_rotary_pos_emb_vision(*states[:2], **tables), strict=True))
    expected["v"] = states[2]
    product = torch.nn.functional.linear(x, linear.weight)
    given = rope.run({"qkv": packed, **tables}, {}, NONE)
    added = rope.run({"qkv": product, **tables}, {"bias": linear.bias}, PRESENT)
    for name in "qkv":
        assert given[name].shape == (tokens, heads, width)
        torch.testing.assert_close(given[name], expected[name])
        torch.testing.assert_close(added[name], expected[name])


def test_more_leading_dims_are_rows(rope: Reference) -> None:
    packed, tables = torch.randn(2, 5, 3 * 2 * 6), table(2, 5, 6)
    got = rope.run({"qkv": packed, **tables}, {}, NONE)
    flat = {n: t.flatten(0, 1) for n, t in {"qkv": packed, **tables}.items()}
    for name, expected in rope.run(flat, {}, NONE).items():
        assert got[name].shape == (2, 5, 2, 6)
        assert torch.equal(got[name].flatten(0, 1), expected)


def test_a_bfloat16_boundary_is_one_rounding_of_the_complex_product(rope: Reference) -> None:
    packed, bias = torch.randn(4, 3 * 2 * 6).bfloat16(), torch.randn(36).bfloat16()
    tables = table(4, 6)
    out = rope.run({"qkv": packed, **tables}, {"bias": bias}, PRESENT)
    states = (packed.double() + bias.double()).view(4, 3, 2, 6)
    unit = torch.complex(tables["cos"].double(), tables["sin"].double())[:, None, :3]
    for index, name in enumerate("qkv"):
        x = states[:, index]
        rotated = torch.complex(x[..., :3], x[..., 3:]) * (1 if name == "v" else unit)
        exact = torch.cat([rotated.real, rotated.imag], dim=-1)
        assert out[name].dtype is torch.bfloat16
        torch.testing.assert_close(out[name].double(), exact, rtol=2**-8, atol=1e-5)


@pytest.mark.parametrize(
    ("packed", "width", "says"),
    [(3 * 2 * 258, 258, "Dh <= 256"), (3 * 2 * 5, 5, "2 divides Dh"), (2 * 2 * 6, 6, "H")],
)
def test_wide_heads_odd_heads_and_unequal_parts_are_refused(
    rope: Reference, packed: int, width: int, says: str
) -> None:
    inputs = {"qkv": torch.randn(4, packed), **dict.fromkeys(("cos", "sin"), torch.ones(4, width))}
    with pytest.raises(Refusal, match=says) as caught:
        rope.run(inputs, {}, NONE)
    assert caught.value.reason is Reason.SHAPE


def test_cost_is_the_hand_count(rope: Reference) -> None:
    sizes = {"M": 2, "H": 3, "Dh": 4}
    each = 2 * 3 * 4
    bare = rope.cost(sizes, NONE)
    # two products and a sum per channel of queries and keys; values are a view
    assert bare.flops == 3 * 2 * each
    assert bare.bytes == 4 * (4 * each + 2 * 2 * 4)
    biased = rope.cost(sizes, PRESENT, 1.0, 2.0)
    assert biased.flops == bare.flops + 3 * each
    assert biased.bytes == 2 * (6 * each + 36) + 4 * (2 * 2 * 4)
