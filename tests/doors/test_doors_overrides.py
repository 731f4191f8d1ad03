"""Scales that a person states reach every door."""

from __future__ import annotations

import pytest

import flashrt as structures
from flashrt.calibration.precision_spec import Source
from flashrt.document.problem import InputError
from flashrt.scheme import Overrides
from flashrt_runtime.reason import Reason, Refusal

BLOCK = "blocks.0"


@pytest.fixture
def stated(tmp_path):
    """``stated(seam, point, scale)``: a file that states one scale."""

    def write(seam=BLOCK, point="x_after_norm", scale=0.5):
        path = tmp_path / "scales.yaml"
        path.write_text(
            f"schema: flashrt.scale_overrides/1\nseams:\n  {seam}: {{{point}: {scale}}}\n"
        )
        return path

    return write


WAYS = {"path": lambda path: path, "str": str, "read": Overrides.read}


@pytest.mark.parametrize("how", WAYS)
def test_a_stated_scale_stands_in_the_plan(net, frames, stated, how):
    given = WAYS[how](stated())
    plan = structures.auto_swaps(
        net, net, observations=frames, scheme="int8_static", overrides=given
    )
    point = plan.precision_spec.bound[BLOCK].points["x_after_norm"]
    assert (point.scale, point.source) == (0.5, Source.OVERRIDE)
    other = plan.precision_spec.bound["blocks.1"].points["x_after_norm"]
    assert other.source is Source.CALIBRATED
    assert plan.precision_spec.overrides == Overrides.read(stated()).digest


def test_it_changes_what_is_computed(net, frames, stated):
    # a step of 2 rounds nearly everything of a normal sample away
    coarse = stated(scale=2.0)
    words = {"observations": frames, "scheme": "int8_static"}
    fine = structures.attach(net, net, **words)
    fine.detach()
    done = structures.attach(net, net, overrides=coarse, **words)
    done.detach()
    assert done.units[0].parity["max_abs"] > 2 * fine.units[0].parity["max_abs"]


UNUSED = [
    ("blocks.9", "x", Reason.BINDING),
    (BLOCK, "y", Reason.BINDING),
    ("head", "x", Reason.CONFLICT),
]


@pytest.mark.parametrize("unused", UNUSED, ids=str)
def test_what_the_plan_does_not_use_is_refused(net, frames, stated, unused):
    seam, point, reason = unused
    with pytest.raises(Refusal) as caught:
        structures.auto_swaps(
            net, net, observations=frames, scheme="int8_static", overrides=stated(seam, point)
        )
    assert caught.value.reason is reason


def test_what_is_no_such_file_is_refused_before_anything_runs(net, stated, tmp_path):
    def never():
        raise AssertionError("the host ran")

    for path in (stated(scale=-1), tmp_path / "none.yaml"):
        with pytest.raises(InputError):
            structures.attach(net, never, scheme="int8_static", overrides=path)


def test_one_region_takes_a_stated_scale(gated, frames, stated):
    file = stated("module", "x_after_norm", 2.0)
    ffn = structures.get("decoder_ffn")
    fine = ffn.bind(gated, frames, scheme="int8_static")
    coarse = ffn.bind(gated, frames, scheme="int8_static", overrides=file)
    expected = gated(frames[0])
    gaps = [float((body(frames[0]) - expected).abs().max()) for body in (fine, coarse)]
    assert gaps[1] > 2 * gaps[0]
