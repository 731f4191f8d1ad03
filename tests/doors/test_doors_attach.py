"""``attach``: gates unit by unit, decides once in the captured form, gives the host back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import flashrt as structures
from flashrt.doors import judge as gates
from flashrt.doors import swaps as planning
from flashrt.race import measure
from flashrt.race.series import Block, Order, Series, Stopped
from flashrt_runtime.capture import capture as really_capture
from flashrt_runtime.contract import BoundSeam
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.seat import Seat
from flashrt_runtime.swap import Swap


def seats(model):
    return [path for path, module in model.named_modules() if isinstance(module, Seat)]


def reasons(unit):
    return {because.reason for because in unit.reasons}


@pytest.fixture
def walk(net, frames):
    """``walk(**given)``: attach to the tiny host with every frame as an observation."""

    def act(**given):
        words = {"scheme": "fp16_weight", "observations": frames} | given
        return structures.attach(net, net, **words)

    return act


def test_what_passes_its_gate_is_attached_and_says_that_no_race_was_held(net, frames, walk):
    expected = net(frames[0])
    done = walk()
    assert {unit.structure for unit in done.units} == {s.seam.structure for s in done.plan.swaps}
    for unit in done.units:
        assert unit.passed
        assert unit.parity["label"] == "fit_residual"
        assert unit.parity["cosine"] > 0.999
        assert unit.ledger["clean"]
    assert done.decision.reason is Reason.UNCAPTURABLE
    assert f"{len(done.handle.units)} units attached" in str(done)
    assert "UNCAPTURABLE" in str(done)
    assert seats(net)
    assert not torch.equal(net(frames[0]), expected)
    done.detach()
    done.detach()
    assert seats(net) == []
    assert torch.equal(net(frames[0]), expected)


def test_a_floor_refuses_the_unit_that_does_not_meet_it(net, walk):
    done = walk(floors={"max_abs": 0.0})
    assert all(reasons(unit) == {Reason.FLOOR} for unit in done.units)
    assert done.handle is None
    assert done.decision.reason is Reason.STRUCTURE
    assert seats(net) == []
    done.detach()
    assert walk(floors={"cosine": 0.99, "top1_agreement": 0.5}).handle is not None


@pytest.mark.parametrize("floors", [{"beauty": 0.1}, {"cosine": float("nan")}, {"kl_mean": 1.0}])
def test_a_floor_on_what_is_not_measured_is_not_met(walk, floors):
    done = walk(floors=floors)
    assert done.handle is None
    assert all(reasons(unit) == {Reason.FLOOR} for unit in done.units)


class Bad(nn.Module):
    """A body that does something else than its seam."""

    def __init__(self, out, change):
        super().__init__()
        self.out, self.change = out, change

    def forward(self, x):
        return self.change(x.new_ones((*x.shape[:-1], self.out)))


BAD = {
    "nan": (lambda x: x * float("nan"), Reason.NONFINITE),
    "huge": (lambda x: x * 1e6, Reason.SCALE),
    "double": (lambda x: x.double(), Reason.DTYPE),
    "narrow": (lambda x: x[..., :1], Reason.SHAPE),
}


@pytest.mark.parametrize("how", BAD)
def test_a_bad_unit_is_left_to_the_host_and_the_others_are_attached(net, walk, monkeypatch, how):
    change, reason = BAD[how]
    plan = planning.plan_swaps

    def spoiled(*given):
        made = plan(*given)
        head = [s for s in made.swaps if s.seam.id == "head"]
        assert head
        bad = [
            Swap(
                s.seam,
                BoundSeam({"self": Bad(32, change)}, "flashrt::bad", 0),
                s.contract,
                "x",
                "y",
            )
            if s in head
            else s
            for s in made.swaps
            if s.seam.structure == "decoder_ffn@1" or s in head
        ]
        return planning.SwapPlan(
            made.scheme, tuple(bad), made.precision_spec, made.notes, made.kept, made.refusals
        )

    monkeypatch.setattr("flashrt.doors.attach.plan_swaps", spoiled)
    done = walk()
    judged = {unit.structure: unit for unit in done.units}
    assert reason in reasons(judged["linear_proj@1"])
    assert judged["decoder_ffn@1"].passed
    assert "head" not in seats(net)
    assert set(seats(net)) == {"blocks.0", "blocks.1"}


def test_a_unit_that_is_never_called_or_falls_back_is_refused(net, frames):
    plan = structures.auto_swaps(net, net, observations=frames, scheme="fp16_weight")
    name, swaps = gates.units_of(plan.swaps)[0]

    class Quiet:
        def __init__(self, **found):
            self.found = {"fell_back": [], "fallbacks": 0, "never_called": []} | found

        def summary(self):
            return self.found

    outputs = [(net(frame), net(frame)) for frame in frames]
    assert gates.judge_unit(name, swaps, Quiet(), outputs, {}).passed
    unit = gates.judge_unit(name, swaps, Quiet(never_called=["a"]), outputs, {})
    assert reasons(unit) == {Reason.NEVER_CALLED}
    unit = gates.judge_unit(name, swaps, Quiet(fell_back=["a"], fallbacks=2), outputs, {})
    assert reasons(unit) == {Reason.FALLBACK}
    scalar = [(torch.tensor(2.0), torch.tensor(2.0))]
    assert gates.judge_unit(name, swaps, Quiet(), scalar, {}).passed


def test_on_guard_fail_is_the_callers_choice(net, frames, walk):
    wrong = frames[0].double()
    done = walk(on_guard_fail="raise")
    with pytest.raises(Refusal) as caught:
        net(wrong)
    assert caught.value.reason is Reason.DTYPE
    done.detach()
    done = walk(on_guard_fail="host")
    with pytest.warns(UserWarning, match="host runs instead"), pytest.raises(RuntimeError):
        net(wrong)  # the host itself does not take it either
    assert done.handle.summary()["fallbacks"] == 1


def test_an_unknown_on_guard_fail_attaches_nothing(net, walk):
    with pytest.raises(Refusal) as caught:
        walk(on_guard_fail="maybe")
    assert caught.value.reason is Reason.CONFLICT
    assert seats(net) == []


def test_rows_that_were_not_observed_run_the_host(net, frames, walk):
    many = torch.randn(64, 64)
    expected = net(many)
    done = walk()
    assert torch.equal(net(many), expected)
    assert done.handle.summary()["dispatched"] > 0
    assert done.handle.summary()["fallbacks"] == 0


def test_a_forward_that_returns_no_tensor_is_refused(net, frames):
    with pytest.raises(Refusal) as caught:
        structures.attach(net, lambda: {"out": net(frames[0])}, scheme="fp16_weight")
    assert caught.value.reason is Reason.FORM
    assert seats(net) == []


def test_logits_of_a_language_model_are_judged(llama):
    model = llama()
    tokens = torch.arange(6)[None]
    before = model(tokens).logits
    done = structures.attach(model, lambda: model(tokens))
    (unit,) = done.units
    assert unit.structure == "qkv_pack@1"
    assert unit.parity["top1_agreement"] == 1.0
    done.detach()
    assert torch.equal(model(tokens).logits, before)


STEP = {"step": lambda model, x: model(x)}


@pytest.fixture
def raced(monkeypatch):
    """Capture without compiling, and a race whose every ratio is the one given."""

    def use(ratio, operators=1, captured=None):
        def capture(step, windows, form=("compile",), name="step"):
            if captured is not None:
                raise captured
            real = really_capture(step, windows, form=("eager",), name=name)
            real.operators = dict.fromkeys(ALL, operators) if name == "treated" else {}
            return real

        def race(arms, clock, meter, rng, rule, **_):
            for arm in arms.values():
                arm()
            if ratio is None:
                return Series((), (), Stopped.NOISE)
            times = (int(1e6 * ratio), 1_000_000)
            count = rule.looks[-1] // 2
            blocks = tuple(Block((times, times), 0.0, True, Order.ABBA) for _ in range(count))
            return Series(blocks, rule.looks, Stopped.DECIDED)

        monkeypatch.setattr("flashrt_runtime.capture.capture", capture)
        monkeypatch.setattr(measure, "race", race)

    return use


ALL = ["blocks.0", "blocks.1", "head"]


OUTCOMES = [(1.5, None), (0.9, Reason.LOSS), (1.02, Reason.AMBIGUOUS), (None, Reason.NOISE)]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=str)
def test_the_captured_race_decides(net, frames, walk, raced, outcome):
    ratio, reason = outcome
    expected = net(frames[0])
    raced(ratio)
    done = walk(**STEP, windows={"x": frames[0]})
    if reason is None:
        assert done.decision is None
        assert seats(net)
    else:
        assert done.decision.reason is reason
        assert done.handle is None
        assert seats(net) == []
        assert torch.equal(net(frames[0]), expected)
    done.detach()
    assert torch.equal(net(frames[0]), expected)


@pytest.mark.parametrize("operators", [0, 2])
def test_an_operator_that_is_not_in_the_graph_once_is_not_attached(
    net, frames, walk, raced, operators
):
    raced(1.5, operators=operators)
    done = walk(**STEP, windows={"x": frames[0]})
    assert done.decision.reason is Reason.NEVER_CALLED
    assert seats(net) == []


def test_a_step_that_cannot_be_captured_is_not_attached(net, frames, walk, raced):
    raced(1.5, captured=Refusal(Reason.UNCAPTURABLE, "a graph break", subject="step"))
    done = walk(**STEP, windows={"x": frames[0]})
    assert done.decision.reason is Reason.UNCAPTURABLE
    assert done.decision.detail == "a graph break"
    assert seats(net) == []


def test_a_step_is_really_captured_with_every_operator_once(net, frames, walk, raced, monkeypatch):
    raced(1.5)
    monkeypatch.setattr("flashrt_runtime.capture.capture", really_capture)
    done = walk(**STEP, windows={"x": frames[0]})
    assert done.decision is None
    assert len(seats(net)) == len(done.plan.swaps)
