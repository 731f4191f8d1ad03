"""A stage is one compiled graph over static windows, or a refusal that names the blocker."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from flashrt_runtime.capture import capture
from flashrt_runtime.compile_form import compiled
from flashrt_runtime.operators import seam_operators
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.swap import attach

WINDOWS = {"x": torch.ones(1, 4)}


def refused(reason: Reason, act: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        act()
    assert caught.value.reason is reason, str(caught.value)
    return caught.value


def test_a_step_through_a_seat_is_one_graph_that_names_its_seam(net: Any, swap_of: Any) -> None:
    expected = net.second(torch.ones(1, 4) * 2)
    handle = attach(net, [swap_of()])
    stage = capture(net, WINDOWS, name="decode")
    handle.add_stage(stage)
    handle.add_stage(stage)
    assert stage.operators == {"first.seam": 1}
    assert stage.seam_operators == {"first.seam": {"flashrt::test_double": 1}}
    assert stage.options["fullgraph"] == "true"
    assert stage.replays == 0
    out = stage.replay(x=torch.ones(1, 4))
    assert torch.allclose(out, expected)
    out.fill_(float("nan"))
    assert torch.allclose(stage.replay(), expected)
    other = torch.full((1, 4), 3.0)
    assert torch.allclose(stage.replay(x=other), net.second(other * 2))
    stage.windows["x"].fill_(1.0)
    assert torch.allclose(stage.replay(), expected)
    with torch.inference_mode():
        stage.replay(x=torch.ones(1, 4))
    report = handle.report()["first.seam"]
    assert (report.calls, report.replayed) == (0, 5)
    assert handle.summary()["clean"] is True
    line = handle.ledger_lines()[-1]
    assert (line["kind"], line["replays"], line["operators"]) == ("stage", 5, {"first.seam": 1})
    refused(Reason.FORM, lambda: stage.replay(y=other))
    refused(Reason.SHAPE, lambda: stage.replay(x=torch.ones(2, 4)))
    refused(Reason.DTYPE, lambda: stage.replay(x=torch.ones(1, 4, dtype=torch.float64)))
    assert torch.equal(stage.windows["x"], torch.ones(1, 4))
    assert stage.replays == 5
    handle.detach()
    late = refused(Reason.UNCAPTURABLE, lambda: stage.replay(x=other))
    assert "second graph" in late.what
    assert stage.replays == 5


def test_members_of_one_seam_are_captured_in_turn() -> None:
    from flashrt_runtime.contract import BoundSeam, Seam
    from flashrt_runtime.guard import FormContract
    from flashrt_runtime.swap import Swap

    class Pack(nn.Module):
        def __init__(self, shelf: dict[str, Any], first: bool) -> None:
            super().__init__()
            self.shelf, self.first = shelf, first

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.first:
                self.shelf["y"] = torch.ops.flashrt.test_double(x, "qk")
                return self.shelf["y"]
            return self.shelf.pop("y") + 1

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            return self.q(x) + self.k(x) + self.k(z)

    torch.manual_seed(0)
    model = Pair().eval().requires_grad_(False)
    host = model.k
    shelf: dict[str, Any] = {}
    seam = Seam("qk", "qkv_pack@1", {"q": "q", "k": "k"}, {}, {"D": 4}, {})
    bound = BoundSeam({"q": Pack(shelf, True), "k": Pack(shelf, False)}, "flashrt::test_double", 0)
    contract = FormContract(torch.device("cpu"), torch.float32, 4, (1, 1))
    attach(model, [Swap(seam, bound, contract, "b", "f")])
    windows = {"x": torch.ones(1, 4), "z": torch.full((1, 4), 5.0)}
    stage = capture(model, windows)
    assert stage.operators == {"qk": 1}
    assert torch.allclose(stage.replay(), windows["x"] * 4 + 1 + host(windows["z"]))


def test_rows_outside_the_band_are_captured_as_the_host(net: Any, swap_of: Any) -> None:
    many = torch.randn(3, 4)
    expected = net(many)
    attach(net, [swap_of()])
    stage = capture(net, {"x": many})
    assert stage.operators == {}
    assert torch.allclose(stage.replay(), expected)


def test_an_unknown_form_is_refused_with_the_list(net: Any) -> None:
    refusal = refused(Reason.FORM, lambda: capture(net, WINDOWS, form=("cudagraph", "compile")))
    assert "['compile'], ['aot'], ['cudagraph'], ['compile', 'cudagraph']" in refusal.what


def test_the_eager_form_runs_and_counts_no_operator(net: Any, swap_of: Any) -> None:
    handle = attach(net, [swap_of()])
    stage = capture(net, WINDOWS, form=("eager",))
    handle.add_stage(stage)
    stage.replay()
    report = handle.report()["first.seam"]
    assert (report.calls, report.replayed) == (1, 0)
    assert stage.form == ("eager",)


def test_a_graph_break_is_refused_and_named() -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x + 1
        return x - 1

    refusal = refused(Reason.UNCAPTURABLE, lambda: capture(breaks, WINDOWS, name="decode"))
    assert refusal.subject == "decode"
    assert "branching" in refusal.what
    assert "test_runtime_capture" in refusal.what


def test_a_step_that_fails_is_refused_with_its_error() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    refusal = refused(Reason.UNCAPTURABLE, lambda: capture(fails, WINDOWS))
    assert refusal.what


def test_a_step_without_tensor_work_is_refused() -> None:
    refusal = refused(Reason.UNCAPTURABLE, lambda: capture(lambda x: 1, WINDOWS))
    assert "no tensor operation" in refusal.what


def test_state_that_changes_the_graph_is_found_at_capture() -> None:
    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ready = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not self.ready:
                self.ready = True
                return x + 1
            return x + 2

    refusal = refused(Reason.UNCAPTURABLE, lambda: compiled(Grows(), WINDOWS, "grows"))
    assert "second graph" in refusal.what


def test_dead_and_nested_operators_are_told_apart() -> None:
    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.flashrt.test_double(x, "inner")

    inner = torch.fx.symbolic_trace(Inner())
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    target = torch.ops.flashrt.test_double.default
    dead = graph.call_function(target, (x, "dead"))
    graph.call_function(torch.relu, (dead,))
    live = graph.call_function(target, (x,), {"seam": "live"})
    graph.output(graph.call_module("inner", (live,)))
    module = torch.fx.GraphModule({"inner": inner}, graph)
    name = "flashrt::test_double"
    assert seam_operators(module) == {"live": {name: 1}, "inner": {name: 1}}
