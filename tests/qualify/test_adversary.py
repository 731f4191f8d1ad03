"""Impls that cheat or break, really run; each ends unknown with the reason that names it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from flashrt.gate.parity import distribution_window
from flashrt.qualify.arm import Treated, share_weights
from flashrt.qualify.controls import eager_digest, poison, two_steps
from flashrt.qualify.feed import logits_of
from flashrt.qualify.group import _path
from flashrt.qualify.request import CellRequest
from flashrt.qualify.run import qualify
from flashrt.receipt.spec_gates import catalog_gates
from flashrt.receipt.verify import verify
from flashrt_runtime.capture import capture
from flashrt_runtime.contract import BoundSeam, Seam
from flashrt_runtime.decode.step import DecodeStep
from flashrt_runtime.guard import FormContract
from flashrt_runtime.reason import Reason
from flashrt_runtime.swap import Swap, attach

DECODE = CellRequest.parse("fp16_weight@decode")
WIDTH, CONTEXT = 64, 32
Q, HEAD = "model.layers.0.self_attn.q_proj", "lm_head"


def operator(name: str, compute: Any) -> Any:
    """Register ``flashrt::<name>(x, weight, seam)``; its shape is that of a projection."""

    def run(x: torch.Tensor, weight: torch.Tensor, seam: str) -> torch.Tensor:
        return compute(x, weight)

    made = torch.library.custom_op(f"flashrt::{name}", run, mutates_args=())
    made.register_fake(lambda x, weight, seam: x.new_empty((*x.shape[:-1], weight.shape[0])))
    return made


def right(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return nn.functional.linear(x, weight)


def nothing_finite(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return right(x, weight) * float("nan")


def constant(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.arange(weight.shape[0], dtype=x.dtype).expand(*x.shape[:-1], -1).clone()


def scribbles_on_its_input(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = right(x, weight)
    x.fill_(float("nan"))
    return out


def scribbles_on_a_weight(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = right(x, weight)
    weight.mul_(1.001)
    return out


OPERATORS = {
    compute.__name__: operator(f"test_adversary_{compute.__name__}", compute)
    for compute in (right, nothing_finite, constant, scribbles_on_its_input, scribbles_on_a_weight)
}


class Body(nn.Module):
    """A projection by one of the operators, over the host's own weight."""

    def __init__(self, how: str, weight: torch.Tensor, seam: str) -> None:
        super().__init__()
        self.operator, self.seam = OPERATORS[how], seam
        self.register_buffer("weight", weight, persistent=False)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.operator(input, self.weight, self.seam)


def swap(how: str, model: nn.Module, path: str, width: int = WIDTH) -> Swap:
    seam = Seam(path, "linear_proj@1", {"self": path}, {}, {"K": WIDTH}, {})
    body = Body(how, model.get_parameter(f"{path}.weight"), path)
    contract = FormContract(torch.device("cpu"), torch.float32, width, (1, 64))
    bound = BoundSeam({"self": body}, f"flashrt::test_adversary_{how}", 0)
    return Swap(seam, bound, contract, "fake", "any")


@pytest.fixture
def host(home: Any) -> nn.Module:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(home / "host", dtype=torch.float32)
    return model.eval().requires_grad_(False)


def stage_of(model: nn.Module) -> Any:
    step = DecodeStep(model, batch=1, rows=1, context=CONTEXT)
    return capture(step, step.windows(), form=("eager",))


def measured(host: nn.Module, how: str, path: str, width: int = WIDTH) -> dict[str, Any]:
    """What a measuring process finds about the arm that one bad body makes."""
    torch.manual_seed(0)
    frames = [torch.randint(3, 90, (17,)) for _ in range(2)]
    before = eager_digest(host, frames[0])
    reference = [logits_of(stage_of(host), frame[:-1], 1) for frame in frames]
    arm = share_weights(host)
    handle = attach(arm, [swap(how, arm, path, width)])
    stage = stage_of(arm)
    found: dict[str, Any] = {
        "poison": poison(stage, two_steps(frames, 1), 1, CONTEXT),
        "windows": [
            distribution_window("frame", expected, logits_of(stage, frame[:-1], 1), frame[1:])
            for expected, frame in zip(reference, frames, strict=True)
        ],
        "fallbacks": handle.summary()["fallbacks"],
    }
    handle.detach()
    return {**found, "digests": [before, eager_digest(arm, frames[0])]}


def judged(run_of: Any, fake: Any, found: dict[str, Any]) -> tuple[str, set[str]]:
    """State and reasons of a cell whose every process found this."""

    def spoil(fragment: dict[str, Any]) -> None:
        fragment["poison"].update(found["poison"])
        fragment["path"]["fallbacks"] = found["fallbacks"]
        fragment["rollback"]["digests"] = found["digests"]
        names = [frame["id"] for frame in fragment["judged"]]
        windows = [w | {"frame": n} for w, n in zip(found["windows"], names, strict=True)]
        if fragment["process"] == 0:
            fragment.update(parity_before=windows, parity_after=windows)

    fake.change = spoil
    (result,) = qualify(run_of(), (DECODE,), lambda text: None, fake)
    assert verify(result.receipt, catalog_gates) == []
    return result.state, {because.reason.name for because in result.because}


def test_an_honest_body_passes_the_same_gates(host, run_of, fake):
    state, reasons = judged(run_of, fake, measured(host, "right", Q))
    assert (state, reasons) == ("certified_fast", set())


BAD = [
    ("nothing_finite", Q, Reason.NONFINITE),
    ("nothing_finite", HEAD, Reason.NONFINITE),
    ("constant", HEAD, Reason.CONSTANT),
    ("scribbles_on_its_input", Q, Reason.NONFINITE),
    ("scribbles_on_a_weight", Q, Reason.ROLLBACK),
    ("scribbles_on_a_weight", HEAD, Reason.ROLLBACK),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad[0]} {bad[1]}")
def test_a_bad_body_is_unknown_and_named(host, run_of, fake, bad):
    how, path, reason = bad
    state, reasons = judged(run_of, fake, measured(host, how, path))
    assert state == "unknown"
    assert reason.name in reasons


def test_a_body_that_is_never_reached_falls_back_and_is_unknown(host, run_of, fake):
    with pytest.warns(UserWarning, match="host runs instead"):
        found = measured(host, "nothing_finite", Q, width=WIDTH + 1)
    assert all(window["nonfinite"] == 0 for window in found["windows"])
    assert judged(run_of, fake, found) == ("unknown", {"FALLBACK"})


class Projection(nn.Module):
    """One linear as a host."""

    def __init__(self) -> None:
        super().__init__()
        self.only = nn.Linear(WIDTH, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.only(x)


class Bypass(nn.Module):
    """Computes the right thing without its operator: nothing of it can be proven."""

    weight: torch.Tensor

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return right(input, self.weight)


@pytest.mark.parametrize(("how", "calls"), [("operator", 1), ("bypass", 0), ("another", 0)])
def test_a_declared_operator_that_is_not_in_the_graph_was_never_called(run_of, fake, how, calls):
    model = Projection().eval().requires_grad_(False)
    good = swap("right", model, "only")
    body = Bypass(model.only.weight) if how == "bypass" else good.bound.bodies["self"]
    declared = "flashrt::not_this_one" if how == "another" else good.bound.operator
    bound = BoundSeam({"self": body}, declared, 0)
    handle = attach(model, [Swap(good.seam, bound, good.contract, "fake", "any")])
    stage = capture(model, {"x": torch.ones(1, WIDTH)})
    stage.replay()
    path = _path(0, Treated(model, handle, {"only": bound.operator}, 0, 0, {}), stage)
    assert path["graph_calls"] == {"only": calls}
    assert path["replays"] == 1

    def spoil(fragment: dict[str, Any]) -> None:
        first = next(iter(fragment["path"]["graph_calls"]))
        fragment["path"]["graph_calls"][first] = path["graph_calls"]["only"]

    fake.change = spoil
    (result,) = qualify(run_of(), (DECODE,), lambda text: None, fake)
    reasons = {because.reason.name for because in result.because}
    assert reasons == (set() if calls else {"NEVER_CALLED"})
