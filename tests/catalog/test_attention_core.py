"""attention_core's reference against torch's own attention, and its cost against a hand count."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from flashrt.spec import load, load_reference
from flashrt.spec.reference import Reference
from flashrt_runtime.reason import Reason, Refusal

PLAIN = {"mask": "none", "scaling": "inverse_sqrt"}
CAUSAL = {**PLAIN, "mask": "causal"}
RANGES = {**PLAIN, "mask": "key_ranges"}
SIZES = {"B": 2, "Tq": 3, "Tk": 5, "Hq": 4, "Hkv": 2, "G": 2, "Dh": 8, "Dv": 16, "R": 2}


@pytest.fixture(scope="module")
def reference() -> Reference:
    return load_reference(load("attention_core"))


def drawn(
    tq: int, tk: int, heads: tuple[int, int] = (4, 2), seed: int = 0
) -> dict[str, torch.Tensor]:
    """Queries, keys and values; the value head is wider than the others."""
    source = torch.Generator().manual_seed(seed)
    shapes = {"q": (2, tq, heads[0], 8), "k": (2, tk, heads[1], 8), "v": (2, tk, heads[1], 16)}
    return {name: torch.randn(shape, generator=source) for name, shape in shapes.items()}


def sdpa(
    inputs: dict[str, torch.Tensor],
    mask: torch.Tensor | None = None,
    *,
    scale: float | None = None,
) -> torch.Tensor:
    q, k, v = (inputs[n].transpose(1, 2) for n in ("q", "k", "v"))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
    return y.transpose(1, 2)


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize(("tq", "tk"), [(1, 7), (5, 5), (3, 7), (7, 3)])
def test_without_a_mask(reference: Reference, tq: int, tk: int, heads: tuple[int, int]) -> None:
    inputs = drawn(tq, tk, heads)
    torch.testing.assert_close(reference.run(inputs, {}, PLAIN)["y"], sdpa(inputs))


@pytest.mark.parametrize(("tq", "tk"), [(1, 1), (1, 7), (5, 5), (3, 7)])
def test_causal_queries_are_the_last_positions(reference: Reference, tq: int, tk: int) -> None:
    inputs = drawn(tq, tk)
    rows = torch.arange(tk - tq, tk)
    mask = torch.arange(tk)[None, :] <= rows[:, None]
    y = reference.run(inputs, {}, CAUSAL)["y"]
    torch.testing.assert_close(y, sdpa(inputs, mask))
    if tq < tk:  # torch's own is_causal counts from the other end: not this convention
        q, k, v = (inputs[n].transpose(1, 2) for n in ("q", "k", "v"))
        other = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        assert not torch.allclose(y, other.transpose(1, 2), atol=1e-2)


def test_causal_with_more_queries_than_keys_gives_zeros_where_nothing_is_seen(
    reference: Reference,
) -> None:
    inputs = drawn(5, 2)
    y = reference.run(inputs, {}, CAUSAL)["y"]
    assert torch.equal(y[:, :3], torch.zeros(2, 3, 4, 16))
    tail = {**inputs, "q": inputs["q"][:, 3:]}
    torch.testing.assert_close(y[:, 3:], reference.run(tail, {}, CAUSAL)["y"])


@pytest.mark.parametrize("ranges", [[[0, 9]], [[2, 5]], [[0, 1], [8, 9]], [[1, 4], [4, 6]]])
def test_key_ranges_are_a_mask_and_a_packing(reference: Reference, ranges: list[list[int]]) -> None:
    inputs = drawn(4, 9)
    y = reference.run({**inputs, "ranges": torch.tensor(ranges)}, {}, RANGES)["y"]
    allowed = torch.zeros(9, dtype=torch.bool)
    for start, stop in ranges:
        allowed[start:stop] = True
    torch.testing.assert_close(y, sdpa(inputs, allowed[None, :].expand(4, 9)))
    packed = {n: t if n == "q" else t[:, allowed] for n, t in inputs.items()}
    torch.testing.assert_close(y, sdpa(packed))


@pytest.mark.parametrize(
    "ranges", [[[3, 3]], [[4, 2]], [[0, 10]], [[-1, 4]], [[0, 4], [3, 6]], [[5, 8], [0, 2]]]
)
def test_ranges_that_are_none_are_refused(reference: Reference, ranges: list[list[int]]) -> None:
    inputs = {**drawn(4, 9), "ranges": torch.tensor(ranges)}
    with pytest.raises(Refusal, match="sorted, disjoint") as refused:
        reference.run(inputs, {}, RANGES)
    assert refused.value.reason is Reason.STRUCTURE


def test_more_than_two_ranges_are_refused(reference: Reference) -> None:
    inputs = {**drawn(4, 9), "ranges": torch.tensor([[0, 1], [2, 3], [4, 5]])}
    with pytest.raises(Refusal, match="R <= 2") as refused:
        reference.run(inputs, {}, RANGES)
    assert refused.value.reason is Reason.SHAPE


def test_heads_that_do_not_share_evenly_are_refused(reference: Reference) -> None:
    with pytest.raises(Refusal, match="Hq") as refused:
        reference.run(drawn(4, 9, (4, 3)), {}, PLAIN)
    assert refused.value.reason is Reason.SHAPE


def test_the_given_scale_replaces_the_heads_own(reference: Reference) -> None:
    inputs = drawn(3, 4)
    variant = {"mask": "none", "scaling": "given", "scale": "0.0625"}
    torch.testing.assert_close(reference.run(inputs, {}, variant)["y"], sdpa(inputs, scale=0.0625))


def test_bfloat16_is_computed_in_float32_and_rounded_once(reference: Reference) -> None:
    inputs = {n: t.bfloat16() for n, t in drawn(6, 40).items()}
    y = reference.run(inputs, {}, CAUSAL)["y"]
    wide = reference.run({n: t.float() for n, t in inputs.items()}, {}, CAUSAL)["y"]
    assert y.dtype is torch.bfloat16
    assert torch.equal(y, wide.bfloat16())


def test_leading_dims_are_kept(reference: Reference) -> None:
    inputs = drawn(3, 5)
    one = reference.run(inputs, {}, CAUSAL)["y"]
    deep = {n: t[:, None].expand(2, 3, *t.shape[1:]) for n, t in inputs.items()}
    y = reference.run(deep, {}, CAUSAL)["y"]
    assert y.shape == (2, 3, 3, 4, 16)
    torch.testing.assert_close(y[:, 1], one)


def test_cost_is_the_count_by_hand(reference: Reference) -> None:
    """2 rows, 4 heads; a pair costs 2*8 + 2*16 + 5 = 53; q, y and k, v move once."""
    free = reference.cost(SIZES, PLAIN)
    assert free.flops == 2 * 4 * 15 * 53
    assert free.bytes == 4 * 2 * (4 * 3 * 24 + 2 * 5 * 24)
    assert reference.cost(SIZES, CAUSAL).flops == 2 * 4 * (3 + 4 + 5) * 53
    assert reference.cost({**SIZES, "Tq": 5, "Tk": 2}, CAUSAL).flops == 2 * 4 * (1 + 2) * 53
    ranged = reference.cost(SIZES, RANGES, activation_bytes=2.0)
    assert ranged.flops == 2 * 4 * 3 * 2 * 53
    assert ranged.bytes == 2 * 2 * (4 * 3 * 24 + 2 * 2 * 24) + 2 * 2 * 8
