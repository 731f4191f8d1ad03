"""adaln_producer against the tables that real adaptive norms compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers.models.normalization import (
    AdaLayerNormContinuous,
    AdaLayerNormZero,
    AdaLayerNormZeroSingle,
)
from diffusers.models.transformers.transformer_wan import (
    WanTimeTextImageEmbedding,
    WanTransformerBlock,
)

from flashrt.spec import load, load_reference
from flashrt.spec.reference import Reference
from flashrt_runtime.reason import Reason, Refusal

ZERO = {"activation": "silu", "bias": "present", "base": "none", "table_count": "6"}


@pytest.fixture(scope="module")
def producer() -> Reference:
    return load_reference(load("adaln_producer"))


def stirred(module: torch.nn.Module) -> Any:
    source = torch.Generator().manual_seed(0)
    for tensor in module.parameters():
        tensor.data = torch.randn(tensor.shape, generator=source)
    return module.eval().requires_grad_(False)


def test_it_makes_the_six_tables_of_adaln_zero(producer: Reference) -> None:
    host = stirred(AdaLayerNormZero(16))
    cond, x = torch.randn(3, 16), torch.randn(3, 5, 16)
    y, *rest = host(x, emb=cond)
    weights = {"weight": host.linear.weight, "bias": host.linear.bias}
    tables = producer.run({"cond": cond}, weights, ZERO)["tables"]
    assert tables.shape == (3, 6, 16)
    for index, expected in enumerate(rest, start=2):
        torch.testing.assert_close(tables[:, index], expected)
    shift, scale = tables[:, 0, None], tables[:, 1, None]
    torch.testing.assert_close(host.norm(x) * (1 + scale) + shift, y)


def test_the_host_says_how_many_tables_there_are(producer: Reference) -> None:
    single = stirred(AdaLayerNormZeroSingle(12))
    cond, x = torch.randn(2, 12), torch.randn(2, 3, 12)
    weights = {"weight": single.linear.weight, "bias": single.linear.bias}
    three = producer.run({"cond": cond}, weights, {**ZERO, "table_count": "3"})["tables"]
    torch.testing.assert_close(three[:, 2], single(x, emb=cond)[1])

    final = stirred(AdaLayerNormContinuous(8, 12, elementwise_affine=False, eps=1e-6))
    weights = {"weight": final.linear.weight, "bias": final.linear.bias}
    two = producer.run({"cond": cond}, weights, {**ZERO, "table_count": "2"})["tables"]
    x = torch.randn(2, 3, 8)
    scale, shift = two.unsqueeze(2).unbind(1)
    torch.testing.assert_close(final.norm(x) * (1 + scale) + shift, final(x, cond))


@pytest.mark.parametrize("tokens", [None, 4])
def test_it_makes_wans_tables_with_each_blocks_base(
    producer: Reference, tokens: int | None
) -> None:
    """One vector per step as in Wan 2.1, and one per token as in Wan 2.2 TI2V."""
    embedder = stirred(WanTimeTextImageEmbedding(16, 8, 6 * 16, 10))
    block = stirred(WanTransformerBlock(16, 24, 2))
    timestep = torch.tensor([999.0, 600.0, 10.0]).repeat_interleave(tokens or 1)
    temb, projected, *_ = embedder(timestep, torch.randn(3, 2, 10), timestep_seq_len=tokens)
    expected = block.scale_shift_table + projected.unflatten(-1, (6, -1))
    weights = {
        "weight": embedder.time_proj.weight,
        "bias": embedder.time_proj.bias,
        "base": block.scale_shift_table[0],
    }
    variant = {"activation": "silu", "bias": "present", "base": "added"}
    got = producer.run({"cond": temb}, weights, variant)["tables"]
    assert got.shape == ((3, 6, 16) if tokens is None else (3, 4, 6, 16))
    torch.testing.assert_close(got, expected)


def test_all_steps_at_once_are_each_step_alone(producer: Reference) -> None:
    weights = {"weight": torch.randn(24, 10)}
    cond = torch.randn(7, 10)
    variant = {"activation": "none", "bias": "none", "base": "none", "table_count": "4"}
    every = producer.run({"cond": cond}, weights, variant)["tables"]
    for step in range(7):
        alone = producer.run({"cond": cond[step : step + 1]}, weights, variant)["tables"]
        torch.testing.assert_close(every[step : step + 1], alone)
    torch.testing.assert_close(every.flatten(1), cond @ weights["weight"].T)


def test_sums_are_float32_at_a_bfloat16_boundary(producer: Reference) -> None:
    cond = torch.randn(2, 2048).bfloat16()
    weights = {"weight": torch.randn(12, 2048).bfloat16(), "base": torch.randn(3, 4).bfloat16()}
    variant = {"activation": "silu", "bias": "none", "base": "added"}
    got = producer.run({"cond": cond}, weights, variant)["tables"]
    wide = torch.nn.functional.silu(cond.double()) @ weights["weight"].double().T
    exact = wide.unflatten(1, (3, 4)) + weights["base"].double()
    assert got.dtype is torch.bfloat16
    torch.testing.assert_close(got.double(), exact, rtol=2**-8, atol=1e-3)


def test_a_count_that_does_not_divide_or_is_missing_is_refused(producer: Reference) -> None:
    given = {"cond": torch.randn(2, 4)}, {"weight": torch.randn(8, 4)}
    variant = {"activation": "none", "bias": "none", "base": "none"}
    with pytest.raises(Refusal, match=r"P\*D.* = 8 .*so D would be 8/3") as caught:
        producer.run(*given, {**variant, "table_count": "3"})
    assert caught.value.reason is Reason.SHAPE
    for wrong in (variant, {**variant, "table_count": "0"}, {**variant, "table_count": "1.5"}):
        with pytest.raises(Refusal, match="table_count") as caught:
            producer.run(*given, wrong)
        assert caught.value.reason is Reason.BINDING


def test_the_tables_are_content_and_there_is_nothing_to_reduce() -> None:
    spec = load("adaln_producer")
    assert spec.outputs["tables"].role == "content"
    assert not spec.points


def test_cost_is_the_hand_count(producer: Reference) -> None:
    sizes = {"S": 2, "C": 3, "P": 5, "D": 7}
    bare = producer.cost(sizes, {**ZERO, "activation": "none", "bias": "none", "table_count": "5"})
    assert bare.flops == 2 * 2 * 3 * 35
    assert bare.bytes == 4 * (3 * 35 + 2 * 3 + 2 * 35)
    variant = {"activation": "silu", "bias": "present", "base": "added"}
    full = producer.cost(sizes, variant, 1.0, 2.0)
    # 4 steps of a silu; bias and base are one addition each
    assert full.flops == bare.flops + 4 * 6 + 2 * 2 * 35
    assert full.bytes == 3 * 35 + 2 * (35 + 35 + 2 * 3 + 2 * 35)
