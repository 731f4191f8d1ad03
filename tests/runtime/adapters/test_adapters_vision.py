"""qkv_rope behind the packed projection of a real vision tower with 72-wide heads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from flashrt_runtime.adapters.vision import packed_vision_qkv
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.swap import attach


def parts(seen: Any) -> tuple[Any, Any, Any]:
    seam = seen.of("qkv_rope")[0]
    return seam, seen.plans[seam.id], seen.host.model.get_submodule(seam.members["self"])


def call(plan: Any, tokens: int) -> dict[str, Any]:
    heads, size = plan.heads
    tables = (torch.rand(tokens, size), torch.rand(tokens, size))
    marks = torch.tensor([0, 4, tokens], dtype=torch.int32)
    return {
        "hidden_states": torch.randn(tokens, heads * size),
        "cu_seqlens": marks,
        "position_embeddings": tables,
    }


def test_discovery_planned_the_boundary(observed: Any) -> None:
    seam, plan, _ = parts(observed("qwen3_vl"))
    assert plan.heads == (2, 72)
    assert (plan.qkv, plan.out) == ("qkv", "proj")
    assert seam.variant == {"bias": "present"}


@pytest.mark.parametrize("bias", ["present", "none"])
def test_the_tower_gives_its_own_output(
    bias: str, observed: Any, core: Any, swap_body: Any, agree: Any
) -> None:
    seen = observed("qwen3_vl")
    seam, plan, host = parts(seen)
    weights = seam.weights if bias == "present" else {}
    seam = replace(seam, variant={"bias": bias}, weights=weights)
    body = packed_vision_qkv(host, core(seam, seen.host.model), plan, seam.variant)
    want = seen.host.forward()
    swap = swap_body(seam.members["self"], body, plan.heads[0] * plan.heads[1])
    handle = attach(seen.host.model, [swap], on_guard_fail="raise")
    got = seen.host.forward()
    handle.detach()
    assert agree(got, want)
    assert body.account.calls == 1
    given = call(plan, plan.capacity)
    assert agree(body(**given), host(**given))
    assert body.inner == ({"proj"} if bias == "present" else {"proj", "qkv"})


def test_projections_that_stay_module_calls_are_the_swapped_ones(
    observed: Any, core: Any, agree: Any
) -> None:
    seen = observed("qwen3_vl")
    seam, plan, host = parts(seen)
    seam = replace(seam, variant={"bias": "none"}, weights={})
    body = packed_vision_qkv(host, core(seam, seen.host.model), plan, seam.variant)
    given = call(plan, plan.capacity)
    for name in ("qkv", "proj"):
        projection = host._modules[name]
        host._modules[name] = torch.nn.Sequential(projection, torch.nn.Tanh())
        try:
            assert agree(body(**given), host(**given))
        finally:
            host._modules[name] = projection


@pytest.mark.parametrize(
    ("change", "reason"),
    [("tokens", Reason.SHAPE), ("dtype", Reason.DTYPE), ("absent", Reason.STRUCTURE)],
)
def test_a_call_outside_the_boundary_is_declined(
    change: str, reason: Reason, observed: Any, core: Any
) -> None:
    seen = observed("qwen3_vl")
    seam, plan, host = parts(seen)
    given = call(plan, plan.capacity + (change == "tokens"))
    if change == "dtype":
        given["position_embeddings"] = tuple(t.half() for t in given["position_embeddings"])
    make = core(seam, seen.host.model)
    if change == "absent":
        given["position_embeddings"] = None
    else:
        body = packed_vision_qkv(host, make, plan, seam.variant)
        assert torch.equal(body(**given), host(**given))
        assert (body.account.calls, body.account.declined) == (0, 1)
    strict = packed_vision_qkv(host, make, plan, seam.variant, strict=True)
    with pytest.raises(Refusal) as refused:
        strict(**given)
    assert refused.value.reason is reason


@pytest.mark.parametrize("heads", [(16, 9), (1, 258), (2, 70)])
def test_odd_wide_and_unequal_heads_are_refused(heads: Any, observed: Any) -> None:
    _, plan, host = parts(observed("qwen3_vl"))
    with pytest.raises(Refusal) as refused:
        packed_vision_qkv(host, dict, replace(plan, heads=heads), {"bias": "none"})
    assert refused.value.reason is Reason.SHAPE


def test_a_host_without_an_interface_is_refused(observed: Any) -> None:
    _, plan, host = parts(observed("qwen3_vl"))

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.proj = host.qkv, host.proj

        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            return self.proj(self.qkv(hidden_states))

    with pytest.raises(Refusal, match="interface") as refused:
        packed_vision_qkv(Plain().eval(), dict, plan, {"bias": "none"})
    assert refused.value.reason is Reason.STRUCTURE
