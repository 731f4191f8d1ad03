"""Every form is a recorded sequence; what cannot be captured in it is refused, never replaced."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import nn

from flashrt_runtime import aot_form, cudagraph_form
from flashrt_runtime.aot_form import packaged
from flashrt_runtime.capture import capture
from flashrt_runtime.cudagraph_form import recorded_graph
from flashrt_runtime.form import FORMS, known_form, needs_cuda, parse_form, text_of
from flashrt_runtime.guard import Place
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.swap import attach

WINDOWS = {"x": torch.ones(1, 4)}
CUDA = [form for form in FORMS if needs_cuda(form)]


def refused(reason: Reason, act: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        act()
    assert caught.value.reason is reason, str(caught.value)
    return caught.value


def test_the_order_of_a_form_is_part_of_it() -> None:
    assert parse_form("compile+cudagraph") == ("compile", "cudagraph")
    assert all(form == ("eager",) or parse_form(text_of(form)) == form for form in FORMS)
    assert ("segmented", "compile", "cudagraph") in FORMS
    refused(Reason.FORM, lambda: parse_form("cudagraph+compile"))
    refused(Reason.FORM, lambda: known_form(("compile", "segmented")))
    assert "diagnosis" in refused(Reason.FORM, lambda: parse_form("eager")).what


@pytest.mark.parametrize("form", CUDA, ids=text_of)
def test_without_cuda_a_cuda_graph_is_refused_and_nothing_else_is_made(
    net: Any, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    from flashrt_runtime.segments import Segment, Segments

    part = Segment("all", lambda x: (net(x),), ("x",), ("y",))
    step = Segments((part,), ("y",), lambda y: y[0]) if form[0] == "segmented" else net
    refusal = refused(Reason.UNCAPTURABLE, lambda: capture(step, WINDOWS, form=form))
    assert "torch finds none" in refusal.what


def test_a_window_that_lies_elsewhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    refusal = refused(Reason.UNCAPTURABLE, lambda: recorded_graph(len, WINDOWS, "s"))
    assert "the window 'x' lies on cpu" in refusal.what
    refusal = refused(Reason.UNCAPTURABLE, lambda: recorded_graph(len, {}, "s"))
    assert "needs a window" in refusal.what


class Tape:
    """In CUDA's place: ``replay`` does what the recorded code did, into the same outputs."""

    def __init__(self) -> None:
        self.replayed = 0

    def replay(self) -> None:
        self.replayed += 1


@pytest.fixture
def taped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        def wait_stream(self, other: Any) -> None:
            """Nothing to wait for."""

    def nothing(*args: Any, **named: Any) -> Any:
        return contextlib.nullcontext()

    monkeypatch.setattr(cudagraph_form, "check_device", lambda w, name: torch.device("cpu"))
    stands = {"CUDAGraph": Tape, "Stream": Stream, "current_stream": Stream}
    stands |= dict.fromkeys(("device", "stream", "graph"), nothing)
    for name, stand_in in stands.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)


@pytest.mark.usefixtures("taped")
def test_a_recorded_step_counts_its_seams_and_keeps_its_outputs(net: Any, swap_of: Any) -> None:
    handle = attach(net, [swap_of(place=Place.CAPTURED)])
    stage = capture(net, WINDOWS, form=("cudagraph",))
    handle.add_stage(stage)
    assert stage.form == ("cudagraph",)
    assert stage.seam_operators == {"first.seam": {"flashrt::test_double": 1}}
    assert stage.options["warmups"] == "3"
    assert stage.replay() is stage.replay()
    assert (handle.report()["first.seam"].replayed, stage.replays) == (2, 2)
    assert handle.report()["first.seam"].dispatched == 0
    net(torch.ones(1, 4))
    assert handle.report()["first.seam"].dispatched == 1, "an eager call is the host's again"


@pytest.mark.usefixtures("taped")
def test_what_cannot_be_recorded_is_named_with_its_line() -> None:
    def reads_a_value(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    refusal = refused(Reason.UNCAPTURABLE, lambda: recorded_graph(reads_a_value, WINDOWS, "step"))
    assert "not permitted when stream is capturing" in refusal.what
    assert "test_capture_forms.py" in refusal.what
    assert "reads_a_value" in refusal.what


class Keeps(nn.Module):
    """Adds its input to a state that it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.seen = [torch.zeros(1, 4)]

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """``{"now", "seen"}``."""
        now = self.first(x)
        self.seen[0].add_(now)
        return {"now": now, "seen": self.seen[0] * 2}


@pytest.mark.slow
def test_an_aot_package_shares_weights_and_state_with_the_host(
    swap_of: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(aot_form.PACKAGES, str(tmp_path / "packages"))
    host = Keeps().eval().requires_grad_(False)
    handle = attach(host, [swap_of(place=Place.CAPTURED)])
    stage = capture(host, WINDOWS, form=("aot",))
    handle.add_stage(stage)
    assert stage.seam_operators == {"first.seam": {"flashrt::test_double": 1}}
    host.seen[0].zero_()
    out = stage.replay(x=torch.full((1, 4), 3.0))
    assert torch.equal(out["now"], torch.full((1, 4), 6.0))
    assert torch.equal(host.seen[0], torch.full((1, 4), 6.0))
    host.seen[0].zero_()
    assert torch.equal(stage.replay()["seen"], torch.full((1, 4), 12.0))
    (package,) = (tmp_path / "packages").iterdir()
    assert package.suffix == ".pt2"

    def no_compiler(*args: Any, **named: Any) -> Any:
        raise AssertionError("a package was there")

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", no_compiler)
    with torch.no_grad():
        again = packaged(host, {"x": torch.ones(1, 4)}, "again", tmp_path / "packages")
        host.seen[0].zero_()
        assert torch.equal(again.run(x=torch.ones(1, 4))["now"], torch.full((1, 4), 2.0))


def test_an_aot_package_of_a_broken_graph_is_refused() -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if bool(x.sum() > 0) else x - 1

    refusal = refused(Reason.UNCAPTURABLE, lambda: capture(breaks, WINDOWS, form=("aot",)))
    assert "test_capture_forms.py" in refusal.what
    refusal = refused(Reason.UNCAPTURABLE, lambda: capture(lambda x: 1, WINDOWS, form=("aot",)))
    assert "no tensor operation" in refusal.what
