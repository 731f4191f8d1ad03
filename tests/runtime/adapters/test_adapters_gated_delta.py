"""gated_delta_core in the slot through which a real hybrid decoder runs one step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from flashrt.host.discovery.attention import AttentionTap, find
from flashrt.host.discovery.trace import Trace
from flashrt.host.tiny import build
from flashrt_runtime.adapters.gated_delta import gated_delta_slots
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.swap import attach


@cache
def decoding() -> tuple[Any, Callable[[], torch.Tensor], Any, Any, Any]:
    """A hybrid decoder, three tokens of generation, and what the tap saw of them."""
    model = build("qwen3_next").model
    tokens = torch.arange(6)[None] + 5

    def generate() -> torch.Tensor:
        return model.generate(tokens, max_new_tokens=3, do_sample=False, pad_token_id=0)

    tap = AttentionTap(model)
    with tap, torch.no_grad():
        generate()
    seams, misses = find(model, Trace(), tap)
    deltas = [s for s in seams if s.structure == "gated_delta_core@1"]
    missed = [m for m in misses if m.structure == "gated_delta_core@1"]
    return model, generate, deltas, missed, tap.plans


def test_a_decode_step_is_a_seam_and_its_prefill_stays_the_hosts() -> None:
    _, _, deltas, missed, plans = decoding()
    assert [s.id for s in deltas] == [
        f"model.layers.{i}.linear_attn.gated_delta_core" for i in (0, 1)
    ]
    assert deltas[0].variant == {"qk_norm": "l2"}
    assert deltas[0].dims == {"Hk": 2, "H": 4, "G": 2, "Dk": 16, "Dv": 16}
    assert {m.because.reason for m in missed} == {Reason.FORM}
    assert {m.path for m in missed} == {s.members["self"] for s in deltas}
    assert plans[deltas[0].id].parameters["state"] == "initial_state"


def test_generation_is_the_hosts_own_and_only_steps_run_the_core(core: Any, swap_body: Any) -> None:
    model, generate, deltas, _, plans = decoding()
    want = generate()
    bodies = {}
    for seam in deltas:
        path = seam.members["self"]
        bodies[path] = gated_delta_slots(
            model.get_submodule(path), core(seam, model), plans[seam.id], seam.variant
        )
    swaps = [swap_body(path, body, 64) for path, body in bodies.items()]
    handle = attach(model, swaps, on_guard_fail="raise")
    got = generate()
    handle.detach()
    assert torch.equal(got, want)
    for body in bodies.values():
        assert (body.account.calls, body.account.dispatched, body.account.declined) == (2, 0, 0)
        assert "out_proj" in body.inner


class Recurrent(nn.Module):
    """A plain tree whose recurrence is an attribute, as older releases of hosts keep it."""

    def __init__(self, step: Callable[..., Any]) -> None:
        super().__init__()
        self.recurrent = step
        self.project = nn.Linear(4, 4)
        self.strided = False

    def forward(self, x: torch.Tensor, state: torch.Tensor | None = None) -> Any:
        q = self.project(x).unflatten(-1, (2, 2))
        if self.strided:
            q = torch.stack((q, q), dim=-1)[..., 0]
        g, beta = -q[..., 0].abs(), q[..., 1].sigmoid()
        return self.recurrent(q, q * 0.5, q * 2, g=g, beta=beta, state=state)


def step(q: Any, k: Any, v: Any, g: Any, beta: Any, *, state: Any = None) -> Any:
    old = torch.zeros(*k.shape[:1], *k.shape[2:], v.shape[-1]) if state is None else state
    reads = []
    for t in range(q.shape[1]):
        old = old * g[:, t].exp()[..., None, None]
        known = torch.einsum("bhkv,bhk->bhv", old, k[:, t])
        new = (v[:, t] - known) * beta[:, t, :, None]
        old = old + k[:, t, :, :, None] * new[:, :, None, :]
        reads.append(torch.einsum("bhkv,bhk->bhv", old, q[:, t] * q.shape[-1] ** -0.5))
    return torch.stack(reads, dim=1), old


def writes(q: Any, k: Any, v: Any, g: Any, beta: Any, *, state: Any = None) -> Any:
    y, final = step(q, k, v, g, beta, state=state)
    if state is not None:
        state.copy_(final)
    return y, final


def other(q: Any, k: Any, v: Any, g: Any, beta: Any, *, state: Any = None) -> Any:
    y, final = step(q, k, v, g, beta, state=state)
    return y + 1, final


def tree(function: Callable[..., Any], batch: int = 1, positions: int = 1) -> Any:
    torch.manual_seed(0)
    host = Recurrent(function).eval().requires_grad_(False)
    return host, torch.randn(batch, positions, 4), torch.randn(batch, 2, 2, 2)


def test_a_slot_that_is_an_attribute_is_found_and_served(looked: Any, core: Any) -> None:
    host, x, state = tree(step)
    seams, missed, plans = looked(host, lambda: host(x, state))
    seam = seams[0]
    assert (seam.structure, seam.variant) == ("gated_delta_core@1", {"qk_norm": "none"})
    assert host.recurrent is step
    body = gated_delta_slots(host, core(seam, host), plans[seam.id], seam.variant)
    for given in (state, None):
        for got, want in zip(body(x, given), host(x, given), strict=True):
            assert torch.allclose(got, want, atol=1e-6)
    assert body.account.calls == 2
    longer = tree(step, positions=3)[1]
    assert torch.equal(body(longer, state)[0], host(longer, state)[0])
    assert (body.account.dispatched, body.account.last.reason) == (1, Reason.FORM)
    assert all(m.structure != "gated_delta_core@1" for m in missed)


@pytest.mark.parametrize(
    ("function", "reason"), [(writes, Reason.LAYOUT), (other, Reason.STRUCTURE)]
)
def test_a_slot_that_writes_its_state_or_is_another_rule_is_a_near_miss(
    function: Any, reason: Reason, looked: Any
) -> None:
    host, x, state = tree(function)
    seams, missed, _ = looked(host, lambda: host(x, state))
    assert seams == ()
    assert missed[0].because.reason is reason


def test_views_that_are_not_contiguous_run_the_host(looked: Any, core: Any) -> None:
    host, x, state = tree(step, batch=2)
    (seam,), _, plans = looked(host, lambda: host(x, state))
    make = core(seam, host)
    body = gated_delta_slots(host, make, plans[seam.id], seam.variant)
    host.strided = True
    assert torch.equal(body(x, state)[0], host(x, state)[0])
    assert (body.account.calls, body.account.declined) == (0, 1)
    assert body.account.last.reason is Reason.LAYOUT
    strict = gated_delta_slots(host, make, plans[seam.id], seam.variant, strict=True)
    with pytest.raises(Refusal, match="not contiguous"):
        strict(x, state)
    seams, missed, _ = looked(host, lambda: host(x, state))
    assert seams == ()
    assert missed[0].because.reason is Reason.LAYOUT


def test_a_host_without_the_slot_is_refused(looked: Any) -> None:
    host, x, state = tree(step)
    (seam,), _, plans = looked(host, lambda: host(x, state))
    for plan in (
        replace(plans[seam.id], name="nothing"),
        replace(plans[seam.id], parameters={**plans[seam.id].parameters, "q": "nothing"}),
    ):
        with pytest.raises(Refusal, match="nothing") as refused:
            gated_delta_slots(host, dict, plan, seam.variant)
        assert refused.value.reason is Reason.STRUCTURE


def flagged(
    q: Any, k: Any, v: Any, g: Any, beta: Any, *, state: Any = None, l2: bool = False
) -> Any:
    if l2:
        q, k = (x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (q, k))
    return step(q, k, v, g, beta, state=state)


def test_a_core_bound_for_another_form_is_declined(looked: Any) -> None:
    host, x, state = tree(flagged)
    (seam,), _, plans = looked(host, lambda: host(x, state))
    plan = plans[seam.id]
    assert plan.parameters["l2"] == "l2"
    body = gated_delta_slots(host, dict, plan, {"qk_norm": "l2"}, strict=True)
    with pytest.raises(Refusal, match="bound for") as refused:
        body(x, state)
    assert refused.value.reason is Reason.FORM
