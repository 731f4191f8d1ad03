"""What a picture shows is what receipt and table hold; what does not fit together is refused."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from flashrt.calibration.table import FORMAT
from flashrt.document.canonical import sha256
from flashrt.document.problem import InputError
from flashrt.report.calibration_figures import clipped, detailed, said, shorten
from flashrt.report.calibration_view import natural, view
from flashrt_runtime.reason import Reason, Refusal

Receipt = tuple[dict[str, Any], bytes]


def test_points_are_in_the_order_of_the_model(calibration: Receipt) -> None:
    names = [p.name.partition(".mlp")[0] for p in view(*calibration).points]
    assert names == [f"layers.{i}" for i in (2, 3, 4, 5, 10)]
    assert natural("a²b") < natural("a³b")


def test_values_are_the_tables(calibration: Receipt) -> None:
    body, table = calibration
    amax = load(table)["amax"]
    last = view(body, table).points[-1]
    assert list(last.values) == sorted(amax[:, 0].astype(float))
    assert (last.seen, last.verdict) == (200, "calibrated")


def test_what_the_percentile_clips_is_counted_frame_by_frame(calibration: Receipt) -> None:
    body, table = calibration
    seen = view(body, table)
    by_name = {p.name: p for p in seen.points}
    expected = int((load(table)["amax"][:, 0] > body["points"][0]["amax"]).sum())
    point = by_name["layers.10.mlp:x"]
    assert point.clipped == expected == 2
    assert point.overshoot == pytest.approx(2.0 / body["points"][0]["amax"])
    assert "2 of 200 frames clipped (1 %)" in clipped(point)
    assert by_name["layers.5.mlp:x"].clipped == 0
    assert clipped(by_name["layers.5.mlp:x"]) == "nothing clipped"
    assert {p.name for p in seen.clipping()} == {"layers.10.mlp:x", "layers.2.mlp:x"}


def test_a_point_without_a_scale_clips_nothing_and_says_so(calibration: Receipt) -> None:
    bare = [p for p in view(*calibration).points if p.amax is None]
    assert [(p.verdict, p.clipped, p.overshoot) for p in bare] == [
        ("dead", 0, None),
        ("uncalibrated", 0, None),
    ]
    assert said(bare[1]).endswith("uncalibrated, no scale, seen in 0 frames")


def test_verdicts_are_counted_and_the_plain_one_is_first(calibration: Receipt) -> None:
    counted = view(*calibration).verdicts
    assert next(iter(counted)) == "calibrated"
    assert sum(counted.values()) == 5


def test_a_percentile_that_was_not_used_is_said(calibration: Receipt) -> None:
    body = copy.deepcopy(calibration[0])
    assert view(body, calibration[1]).percentile == "99"
    body["percentile"]["effective"] = 100.0
    assert view(body, calibration[1]).percentile == "99, in effect the maximum"


def test_the_points_shown_frame_by_frame_keep_what_is_not_plain(calibration: Receipt) -> None:
    seen = view(*calibration)
    assert {p.verdict for p in detailed(seen, 2)} == {"outlier", "calibrated"} or {
        p.verdict for p in detailed(seen, 2)
    } == {"outlier", "undersampled"}
    assert len(detailed(seen, 2)) == 2
    assert detailed(seen) == seen.widest()


def test_a_long_name_keeps_both_ends() -> None:
    assert shorten("short") == "short"
    long = shorten("model." + "x" * 80 + ":act_after_mul")
    assert len(long) == 46
    assert long.startswith("model.")
    assert long.endswith(":act_after_mul")


def test_another_table_is_refused(calibration: Receipt) -> None:
    body, table = calibration
    with pytest.raises(Refusal) as caught:
        view(body, table + b" ")
    assert caught.value.reason is Reason.DIGEST


def test_a_range_that_is_not_the_tables_is_refused(calibration: Receipt) -> None:
    body, table = copy.deepcopy(calibration[0]), calibration[1]
    body["points"][0]["maximum"] *= 2
    with pytest.raises(Refusal) as caught:
        view(body, table)
    assert caught.value.reason is Reason.STATISTIC
    assert caught.value.subject == "layers.10.mlp:x"


def test_a_table_of_another_shape_is_refused(calibration: Receipt) -> None:
    body, table = copy.deepcopy(calibration[0]), calibration[1]
    tensors = {name: np.ascontiguousarray(t[:-1]) for name, t in load(table).items()}
    short = save(tensors, metadata={"format": FORMAT})
    body["table"] = sha256(short)
    with pytest.raises(InputError, match="shape"):
        view(body, short)


def test_a_scale_between_two_float32_neighbours_clips_the_upper_one(calibration: Receipt) -> None:
    body, table = calibration
    top = np.float32(2.0)
    below = float(np.nextafter(top, np.float32(0.0)))
    body["points"][0]["amax"] = (below + 2.0) / 2
    assert view(body, table).points[-1].clipped == 1
