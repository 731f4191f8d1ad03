"""A step in parts runs whole, and each part is captured on its own in a segmented form."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flashrt_runtime import segmented_form
from flashrt_runtime.capture import capture
from flashrt_runtime.compile_form import CapturedGraph
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.segmented_form import segmented
from flashrt_runtime.segments import Segment, Segments

WINDOWS = {"x": torch.ones(1, 4)}


def refused(reason: Reason, act: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        act()
    assert caught.value.reason is reason, str(caught.value)
    return caught.value


def parts() -> Segments:
    """``x -> 3 times (twice, by an operator) -> + 1``."""
    double = torch.ops.flashrt.test_double
    init = Segment("init", lambda x: (x + 0.5,), ("x",), ("begun",))
    step = Segment(
        "step", lambda c: (double(c, "seam"),), ("c",), ("c",), repeat=3, starts={"c": "begun"}
    )
    readout = Segment("readout", lambda c, x: (c + x,), ("c", "x"), ("y",))
    return Segments((init, step, readout), ("y",), lambda y: {"y": y[0]})


def kept(step: Any, windows: dict[str, Any], name: str) -> CapturedGraph:
    """A whole form that notes its part's name and runs it over the static windows only."""
    operators = {"seam": {"flashrt::test_double": 1}} if name.endswith("step") else {}
    return CapturedGraph(lambda **given: step(**windows), operators, {"part": name})


def test_called_it_runs_whole() -> None:
    assert torch.equal(parts()(x=torch.ones(1, 4))["y"], torch.full((1, 4), 13.0))


def test_every_part_is_captured_on_its_own_and_counted_as_often_as_it_runs() -> None:
    graph = segmented(parts(), WINDOWS, "s", kept)
    assert graph.operators == {"seam": {"flashrt::test_double": 3}}
    assert graph.options == {"part": "s.init", "segments": "init step*3 readout"}
    for value in (1.0, 2.0):
        given = torch.full((1, 4), value)
        assert torch.equal(graph.run(x=given)["y"], parts()(x=given)["y"])


def test_the_form_is_recorded_in_order() -> None:
    stage = capture(parts(), WINDOWS, form=("segmented", "compile"))
    assert stage.form == ("segmented", "compile")
    assert stage.operators == {"seam": 3}
    assert (stage.options["segments"], stage.options["backend"]) == (
        "init step*3 readout",
        "inductor",
    )
    given = torch.full((1, 4), 2.0)
    assert torch.allclose(stage.replay(x=given)["y"], parts()(x=given)["y"])


def test_a_blocked_part_is_named() -> None:
    bad = Segment("branch", lambda x: (x if bool(x.sum() > 0) else -x,), ("x",), ("y",))
    step = Segments((bad,), ("y",), lambda y: y[0])
    refusal = refused(
        Reason.UNCAPTURABLE, lambda: capture(step, WINDOWS, form=("segmented", "compile"))
    )
    assert refusal.subject == "step.branch"


@pytest.mark.parametrize(
    ("segments", "told"),
    [
        ((Segment("a", abs, ("z",), ("y",)),), "'z', which nothing gave"),
        ((Segment("a", abs, ("x",), ("q",)),), "'y' is written by no part"),
        ((Segment("a", abs, ("x",), ("y",), repeat=0),), "repeats 0"),
        ((Segment("a", abs, ("c",), ("y",), starts={"c": "z"}),), "'z', which nothing gave"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(segments: Any, told: str) -> None:
    step = Segments(segments, ("y",), lambda y: y[0])
    assert told in refused(Reason.BINDING, lambda: segmented(step, WINDOWS, "s", kept)).what


def test_a_step_without_parts_has_no_segmented_form() -> None:
    refusal = refused(Reason.FORM, lambda: segmented_form.segmented(len, WINDOWS, "s", kept))
    assert "declares its parts" in refusal.what
