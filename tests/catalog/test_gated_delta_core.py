"""gated_delta_core's reference against the two rules of transformers' Qwen3-Next."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import transformers.models.qwen3_next.modeling_qwen3_next as qwen3_next

from flashrt.spec import load, load_reference
from flashrt.spec.reference import Reference
from flashrt_runtime.reason import Reason, Refusal

RULES = {
    # What the decorator hides may be a kernel of the hub; these are the plain functions.
    name: inspect.unwrap(getattr(qwen3_next, f"torch_{name}_gated_delta_rule"))
    for name in ("recurrent", "chunk")
}
SIZES = {"B": 2, "T": 3, "Hk": 2, "H": 4, "G": 2, "Dk": 8, "Dv": 16}


@pytest.fixture(scope="module")
def reference() -> Reference:
    return load_reference(load("gated_delta_core"))


def drawn(positions: int, heads: tuple[int, int] = (2, 4), seed: int = 0) -> dict[str, Any]:
    """``heads`` are key heads and value heads; the value head is wider."""
    source = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(2, *shape, generator=source)

    hk, h = heads
    return {
        "q": normal(positions, hk, 8),
        "k": normal(positions, hk, 8) / 3.0,
        "v": normal(positions, h, 16),
        "g": -normal(positions, h).abs(),
        "beta": torch.sigmoid(normal(positions, h)),
        "state": normal(h, 8, 16),
    }


def host(rule: str, inputs: dict[str, Any], norm: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The host's rule; key heads are repeated first, which every version of it admits."""
    group = inputs["v"].shape[2] // inputs["k"].shape[2]
    q, k = (inputs[n].repeat_interleave(group, dim=2) for n in ("q", "k"))
    with torch.no_grad():
        result: tuple[torch.Tensor, torch.Tensor | None] = RULES[rule](
            q,
            k,
            inputs["v"],
            g=inputs["g"],
            beta=inputs["beta"],
            initial_state=inputs.get("state"),
            output_final_state=True,
            use_qk_l2norm_in_kernel=norm == "l2",
        )
    return result


@pytest.mark.parametrize("norm", ["none", "l2"])
@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("size", [(1, (2, 4)), (7, (2, 2)), (70, (1, 3))])
def test_it_is_the_hosts_rule(
    reference: Reference, norm: str, rule: str, fresh: bool, size: tuple[int, tuple[int, int]]
) -> None:
    inputs = drawn(*size)
    if fresh:
        del inputs["state"]
    out = reference.run(inputs, {}, {"qk_norm": norm})
    y, state = host(rule, inputs, norm)
    torch.testing.assert_close(out["y"], y, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(out["final_state"], state, rtol=1e-4, atol=1e-4)


def test_one_position_by_hand(reference: Reference) -> None:
    """State 2, decay 1/2, key 3, value 10, strength 1/4: 1 + 3 * (10 - 3) / 4 = 6.25."""
    one = torch.ones(1, 1, 1, 1)
    inputs = {
        "q": 4.0 * one,
        "k": 3.0 * one,
        "v": 10.0 * one,
        "g": torch.full((1, 1, 1), 0.5).log(),
        "beta": torch.full((1, 1, 1), 0.25),
        "state": 2.0 * one,
    }
    out = reference.run(inputs, {}, {"qk_norm": "none"})
    assert out["final_state"].item() == pytest.approx(6.25)
    assert out["y"].item() == pytest.approx(25.0)


def test_three_calls_that_carry_the_state_are_one_call(reference: Reference) -> None:
    inputs = drawn(9)
    whole = reference.run(inputs, {}, {"qk_norm": "l2"})
    state, read = inputs["state"], []
    for part in range(3):
        cut = {n: t[:, 3 * part : 3 * part + 3] for n, t in inputs.items() if n != "state"}
        out = reference.run({**cut, "state": state}, {}, {"qk_norm": "l2"})
        state = out["final_state"]
        read.append(out["y"])
    torch.testing.assert_close(torch.cat(read, dim=1), whole["y"])
    torch.testing.assert_close(state, whole["final_state"])


def test_the_state_it_was_given_is_not_written(reference: Reference) -> None:
    inputs = drawn(2)
    before = inputs["state"].clone()
    after = reference.run(inputs, {}, {"qk_norm": "none"})["final_state"]
    assert torch.equal(inputs["state"], before)
    assert not torch.equal(after, before)


def test_bfloat16_is_computed_in_float32_and_the_state_stays_float32(reference: Reference) -> None:
    exact = ("g", "state")
    inputs = {n: t if n in exact else t.bfloat16() for n, t in drawn(70).items()}
    out = reference.run(inputs, {}, {"qk_norm": "l2"})
    wide = reference.run({n: t.float() for n, t in inputs.items()}, {}, {"qk_norm": "l2"})
    assert out["y"].dtype is torch.bfloat16
    assert out["final_state"].dtype is torch.float32
    assert torch.equal(out["y"], wide["y"].bfloat16())
    assert torch.equal(out["final_state"], wide["final_state"])


def test_heads_that_do_not_share_evenly_are_refused(reference: Reference) -> None:
    with pytest.raises(Refusal, match="H") as refused:
        reference.run(drawn(2, (3, 4)), {}, {"qk_norm": "none"})
    assert refused.value.reason is Reason.SHAPE


def test_cost_is_the_count_by_hand(reference: Reference) -> None:
    """8 heads of 8 x 16: the first position 2 operations an element, two more positions 6 each."""
    plain = reference.cost(SIZES, {"qk_norm": "none"}, activation_bytes=2.0)
    assert plain.flops == 8 * 128 * (2 + 6 + 6)
    assert plain.bytes == 2 * (6 * (2 * 2 * 8 + 2 * 4 * 16 + 4)) + 4 * (6 * 4 + 8 * 128)
    normed = reference.cost(SIZES, {"qk_norm": "l2"})
    assert normed.flops - plain.flops == 2 * (6 * 2 * 8) * 3
