"""The final decision: one, end to end, in the captured form, on everything that is attached."""

from __future__ import annotations

import pytest

import flashrt as structures
from flashrt.doors import judge as gates
from flashrt.race import measure
from flashrt.race.series import Block, Order, Series, Stopped
from flashrt_runtime.capture import Stage
from flashrt_runtime.reason import Reason
from flashrt_runtime.seat import Seat

WON = (1_500_000, 1_000_000)


def seats(model):
    return [path for path, module in model.named_modules() if isinstance(module, Seat)]


class Spoiled(Stage):
    """A captured step whose outputs ``spoil`` changes, given how often it ran."""

    spoil = None

    def replay(self, **inputs):
        out = super().replay(**inputs)
        return out if self.spoil is None else self.spoil(out, self.replays)


@pytest.fixture
def walk(net, frames, monkeypatch):
    """``walk(host=, treated=, **given)``: attach with a step whose arms' outputs are spoiled."""
    raced = []

    def act(*, host=None, treated=None, **given):
        def capture(step, windows, form=("compile",), name="step"):
            static = {key: value.clone() for key, value in windows.items()}
            stage = Spoiled(name, tuple(form), static, step, seam_operators={}, options={})
            stage.operators = dict.fromkeys(("blocks.0", "blocks.1", "head"), 1)
            stage.spoil = host if name == "host" else treated
            return stage

        def race(arms, clock, meter, rng, rule, **_):
            raced.append(sorted(arms))
            for arm in arms.values():
                arm()
            blocks = (Block((WON, WON), 0.0, True, Order.ABBA),) * (rule.looks[-1] // 2)
            return Series(blocks, rule.looks, Stopped.DECIDED)

        monkeypatch.setattr("flashrt_runtime.capture.capture", capture)
        monkeypatch.setattr(measure, "race", race)
        words = {"scheme": "fp16_weight", "observations": frames, "windows": {"x": frames[0]}}
        done = structures.attach(net, net, step=lambda m, x: m(x), **words | given)
        return done, raced

    return act


def test_a_win_is_a_decision_on_everything_that_is_attached(net, walk):
    done, _ = walk()
    assert done.final.passed
    assert done.final.form == ("compile",)
    assert sorted(done.final.seams) == sorted(seats(net))
    assert done.final.parity["label"] == "captured step"
    assert done.final.parity["cosine"] > 0.999
    assert done.final.speedup[0] > 1.02
    assert done.final.evidence == "decision (captured)"
    assert {unit.evidence for unit in done.units} == {"preflight (eager)"}


SPOILED = {
    "nan": (lambda out, n: out * float("nan"), Reason.NONFINITE),
    "double": (lambda out, n: out * 2, Reason.SCALE),
    "shape": (lambda out, n: out[:, :1], Reason.SHAPE),
    "dtype": (lambda out, n: out.double(), Reason.DTYPE),
}


@pytest.mark.parametrize("how", SPOILED)
def test_what_the_captured_arm_gets_wrong_is_not_raced(net, walk, how):
    spoil, reason = SPOILED[how]
    done, raced = walk(treated=spoil)
    assert done.decision.reason is reason
    assert all(unit.passed for unit in done.units), "eager, nothing was wrong"
    assert raced == []
    assert seats(net) == []


def test_floors_hold_in_the_captured_form(net, walk):
    done, raced = walk(treated=lambda out, n: out + 0.01, floors={"max_abs": 0.005})
    assert done.decision.reason is Reason.FLOOR
    assert raced == []


def test_a_host_that_does_not_repeat_itself_decides_nothing(walk):
    done, raced = walk(host=lambda out, n: out + n)
    assert done.decision.reason is Reason.EMPTY_CONTROL
    assert raced == []


def test_an_arm_that_changes_its_answer_after_the_race_is_not_attached(net, walk):
    done, raced = walk(treated=lambda out, n: out + 0.01 * (n > 1))
    assert raced == [["host", "treated"]]
    assert done.decision.reason is Reason.INTEGRITY
    assert seats(net) == []


def test_an_eager_step_decides_nothing(net, walk):
    done, raced = walk(form=("eager",))
    assert done.decision.reason is Reason.UNCAPTURABLE
    assert raced == []
    assert seats(net) == []


def test_units_that_fail_only_beside_one_another_are_told_apart(net, frames, monkeypatch):
    really = gates.judge_unit

    def strict(structure, swaps, handle, outputs, floors):
        many = handle.summary()["seams"] > len(swaps)
        return really(structure, swaps, handle, outputs, {"max_abs": 0.0} if many else floors)

    monkeypatch.setattr("flashrt.doors.attach.judge_unit", strict)
    done = structures.attach(net, net, observations=frames, scheme="fp16_weight")
    first, second = done.units
    assert first.passed
    assert first.together is None
    (why,) = second.reasons
    assert why.reason is Reason.FLOOR
    assert why.detail.startswith("beside the units before it")
    assert set(seats(net)) == {swap.seam.id for swap in first.swaps}


def test_what_is_attached_was_judged_as_a_whole(net, frames):
    done = structures.attach(net, net, observations=frames, scheme="fp16_weight")
    last = done.units[-1]
    assert last.together["max_abs"] >= last.parity["max_abs"] * 0.5
    expected = [net(frame) for frame in frames]
    done.detach()
    worst = max(float((net(f) - e).abs().max()) for f, e in zip(frames, expected, strict=True))
    assert worst == pytest.approx(last.together["max_abs"], rel=1e-3)
