"""What a receipt says was seen has to agree with itself: no table holds calls, rows and lengths."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from flashrt_runtime.reason import Reason, Refusal

_DTYPES = ("bfloat16", "float16", "float32", "float64")  # what has an amax


def require_coherent(body: Mapping[str, Any]) -> None:
    """Refuse (STATISTIC) a receipt whose facts about calls and frames contradict each other.

    A seal says only that nothing was changed since; whoever seals again may claim anything.
    """
    for point in body["points"]:
        what = _point(point)
        if what:
            raise Refusal(Reason.STATISTIC, what, subject=f"{point['seam']}:{point['point']}")
    workload = body["workload"]
    names = [frame["id"] for frame in workload["frames"]]
    for one, two in pairwise(names):
        if not one < two:
            raise Refusal(Reason.STATISTIC, f"it comes after {one}, not by id", subject=two)
    for part in ("frames", "held_out"):
        _frames(workload[part], int(workload["window"]))


def _point(point: Mapping[str, Any]) -> str:
    """What is wrong with a point's facts; empty where nothing is."""
    seen, calls, facts = point["seen"], point["calls"], point["observed"]
    if (facts is None) != (seen == 0) or (calls == 0) != (seen == 0) or calls < seen:
        told = "nothing" if facts is None else "a shape"
        return f"{seen} frames reached it in {calls} calls and {told} was observed"
    if facts is None:
        return ""
    low, high = facts["rows"]
    if not 1 <= low <= high or (calls == 1 and low != high):
        return f"its {calls} calls had from {low} to {high} rows"
    if facts["dtype"] not in _DTYPES:
        return f"{facts['dtype']} is no dtype that is measured"
    finer = point.get("grouped", {"width": facts["width"], "rows": seen})
    if finer["width"] != facts["width"] or not seen <= finer["rows"] <= calls * high:
        return f"{finer['rows']} rows of {finer['width']} channels are not those of its calls"
    return ""


def _frames(frames: list[dict[str, Any]], window: int) -> None:
    contents: dict[str, str] = {}
    for frame in frames:
        if frame["positions"] != window:
            what = f"it has {frame['positions']} positions and the workload's frames {window}"
            raise Refusal(Reason.STATISTIC, what, subject=frame["id"])
        # a robot may stand still; no window of text is drawn twice
        if "episode" not in frame and frame["digest"] in contents:
            what = f"it has the content of {contents[frame['digest']]}"
            raise Refusal(Reason.STATISTIC, what, subject=frame["id"])
        contents[frame["digest"]] = frame["id"]
