"""Negotiated chains: found by facts, judged as one, attached whole, taken out whole."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import flashrt as structures
from flashrt.doors import judge as gates
from flashrt_runtime import swap
from flashrt_runtime.capture import capture
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.seat import Seat

KIND = "norm_fused@1 -> linear_proj@1"
NORM, LEFT, RIGHT = PARTS = ("block.norm", "block.left", "block.right")


class Rms(nn.Module):
    """RMSNorm in float32."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.eps = 1e-6

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * y


class Block(nn.Module):
    """A norm that two projections read; ``also`` is done with what the norm returns."""

    def __init__(self, also=None):
        super().__init__()
        self.norm = Rms(64)
        self.left = nn.Linear(64, 48, bias=False)
        self.right = nn.Linear(64, 48)
        self.also = also
        self.kept = None

    def forward(self, x):
        y = self.norm(x)
        extra = None if self.also is None else self.also(self, y)
        z = torch.tanh(self.left(y)) * self.right(y)
        return z if extra is None else z + extra


class Host(nn.Module):
    """A block and a head, which keeps the host's precision."""

    def __init__(self, also=None):
        super().__init__()
        self.block = Block(also)
        self.out = nn.Linear(48, 16)

    def forward(self, x):
        return self.out(self.block(x))


def host(also=None):
    torch.manual_seed(3)
    return Host(also).eval().requires_grad_(False)


@pytest.fixture
def shown():
    torch.manual_seed(4)
    return [torch.randn(4, 64) for _ in range(4)]


def planned(model, shown, **given):
    return structures.auto_swaps(model, model, observations=shown, scheme="fp8_static", **given)


def seats(model):
    return {path for path, module in model.named_modules() if isinstance(module, Seat)}


def test_a_norm_emits_under_the_scale_that_its_readers_were_bound_for(shown):
    model = host()
    plan = planned(model, shown)
    (chain,) = plan.chains
    assert (chain.id, chain.kind, chain.readers) == (NORM, KIND, (LEFT, RIGHT))
    bound = plan.precision_spec.bound
    assert bound[LEFT].points["x"].scale == bound[RIGHT].points["x"].scale == chain.scale
    norm = bound[NORM]
    assert norm.impl == ("cpu_fp8", "emit")
    assert norm.points["y"].scale == chain.scale
    links = {s.seam.id: s.link for s in plan.swaps}
    assert links[NORM].emits
    assert not links[LEFT].emits
    assert {link.unit for link in links.values()} == {NORM}


def test_the_wire_changes_no_bit_of_what_its_readers_compute(shown):
    model = host()
    plan = planned(model, shown)
    handle = swap.attach(model, plan.swaps, on_guard_fail="raise")
    seen = [model(x) for x in shown]
    report = handle.report()
    assert handle.summary()["clean"]
    assert {report[s].calls for s in PARTS} == {len(shown)}
    handle.detach()
    # the same readers without the producer: each quantises the host's norm itself
    bodies = {s.seam.id: s.bound.bodies["self"] for s in plan.swaps}
    for x, y in zip(shown, seen, strict=True):
        normed = model.block.norm(x)
        z = torch.tanh(bodies[LEFT](normed)) * bodies[RIGHT](normed)
        assert torch.equal(model.out(z), y)


OBJECTIONS = {
    "a function": (lambda host, y: y.sum() * 0, "sum reads it outside"),
    "a view": (lambda host, y: y[:, :48] * 0, "__getitem__ reads it outside"),
    "its dtype": (lambda host, y: torch.zeros((), dtype=y.dtype), "__get__ reads it outside"),
    "kept": (lambda host, y: setattr(host, "kept", y), "outlives the forward"),
    "twice": (lambda host, y: host.left(y) * 0, "twice"),
}


@pytest.mark.parametrize("how", OBJECTIONS)
def test_a_tensor_that_anything_else_reads_is_never_emitted(shown, how):
    also, told = OBJECTIONS[how]
    model = host(also)
    plan = planned(model, shown)
    assert plan.chains == ()
    (why,) = [b for b in plan.kept if b.subject == NORM]
    assert why.reason is Reason.SHARED_INPUT
    assert told in why.detail
    assert all(s.link is None for s in plan.swaps)
    assert {LEFT, RIGHT} == {s.seam.id for s in plan.swaps}


def test_shapes_and_devices_may_be_looked_at(shown):
    model = host(lambda host, y: torch.zeros(y.shape[:-1], device=y.device).sum() * len(y))
    assert [c.id for c in planned(model, shown).chains] == [NORM]


def test_readers_that_change_from_call_to_call_are_no_chain(shown):
    def sometimes(host, y):
        return host.third(y) * 0 if float(host.seen[0, 0]) > 0 else None

    model = host(sometimes)
    model.block.third = nn.Linear(64, 48).eval().requires_grad_(False)
    first, second = shown[0].clone(), shown[1].clone()
    first[0, 0], second[0, 0] = 1.0, -1.0
    model.block.seen = first

    def forward(x):
        model.block.seen = x
        return model(x)

    plan = structures.auto_swaps(model, forward, observations=[first, second], scheme="fp8_static")
    assert plan.chains == ()
    assert any("change from call to call" in because.detail for because in plan.kept)


def test_a_chain_that_is_not_whole_is_not_attached(shown):
    model = host()
    swaps = planned(model, shown).swaps
    for cut in (swaps[1:], swaps[:1]):
        with pytest.raises(Refusal) as caught:
            swap.attach(model, cut)
        assert caught.value.reason is Reason.BINDING
        assert "not whole" in str(caught.value)
        assert seats(model) == set()


def test_readers_under_two_scales_are_no_chain(shown, tmp_path):
    model = host()
    file = tmp_path / "mine.yaml"
    file.write_text(f"schema: flashrt.scale_overrides/1\nseams: {{{LEFT}: {{x: 0.5}}}}\n")
    plan = planned(model, shown, overrides=file)
    assert plan.chains == ()
    (why,) = [b for b in plan.kept if b.subject == NORM]
    assert why.reason is Reason.CONFLICT
    assert "0.5" in why.detail


def test_one_stated_scale_for_all_readers_is_the_wires(shown, tmp_path):
    model = host()
    both = f"{{{LEFT}: {{x: 0.5}}, {RIGHT}: {{x: 0.5}}}}"
    file = tmp_path / "mine.yaml"
    file.write_text(f"schema: flashrt.scale_overrides/1\nseams: {both}\n")
    (chain,) = planned(model, shown, overrides=str(file)).chains
    assert chain.scale == 0.5


def test_a_chain_is_judged_and_attached_as_one_unit(shown):
    model = host()
    expected = model(shown[0])
    done = structures.attach(model, model, observations=shown, scheme="fp8_static")
    judged = {unit.structure: unit for unit in done.units}
    assert {s.seam.id for s in judged[KIND].swaps} == set(PARTS)
    assert judged[KIND].chains == (NORM,)
    assert judged[KIND].passed
    assert judged[KIND].evidence.startswith("preflight")
    assert seats(model) == set(PARTS)
    done.detach()
    assert seats(model) == set()
    assert torch.equal(model(shown[0]), expected)


def test_a_chain_that_fails_its_gate_is_left_to_the_host_whole(shown, monkeypatch):
    model = host()
    really = gates.judge_unit

    def strict(structure, swaps, handle, outputs, floors):
        bound = {"max_abs": 0.0} if structure == KIND else floors
        return really(structure, swaps, handle, outputs, bound)

    monkeypatch.setattr("flashrt.doors.attach.judge_unit", strict)
    done = structures.attach(model, model, observations=shown, scheme="fp8_static")
    refused = [unit for unit in done.units if not unit.passed]
    assert [unit.structure for unit in refused] == [KIND]
    assert seats(model) == set()


def test_rows_that_were_not_seen_run_the_host_through_the_whole_chain(shown):
    model = host()
    many = torch.randn(9, 64)
    expected = model(many)
    handle = swap.attach(model, planned(model, shown).swaps)
    assert torch.equal(model(many), expected)
    assert {handle.report()[s].dispatched for s in PARTS} == {1}
    assert handle.summary()["fallbacks"] == 0


def test_a_captured_step_holds_every_operator_of_the_chain_once(shown):
    model = host()
    plan = planned(model, shown)
    handle = swap.attach(model, plan.swaps)
    eager = model(shown[0])
    stage = capture(model, {"x": shown[1]})
    assert stage.operators == dict.fromkeys(PARTS, 1)
    seen = stage.replay(x=shown[0])
    assert torch.allclose(seen, eager, atol=0.05)
    assert float(torch.nn.functional.cosine_similarity(seen, eager).min()) > 0.999
    model(shown[2])
    assert handle.summary()["clean"]


def test_a_language_model_gets_its_chains(llama):
    model = llama()
    tokens = torch.arange(8)[None]
    expected = model(tokens).logits
    plan = structures.auto_swaps(model, lambda: model(tokens), scheme="fp8_static")
    kinds = {chain.kind for chain in plan.chains}
    assert kinds == {KIND, "norm_fused@1 -> decoder_ffn@1"}
    assert len(plan.chains) == 4
    handle = swap.attach(model, plan.swaps, on_guard_fail="raise")
    seen = model(tokens).logits
    assert handle.summary()["clean"]
    assert float(torch.nn.functional.cosine_similarity(seen, expected, dim=-1).min()) > 0.98
    handle.detach()
    assert torch.equal(model(tokens).logits, expected)
