"""Facts that a receipt states twice, and facts that exclude each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flashrt.receipt.instant import instant
from flashrt_runtime.reason import Because, Reason


def _conflict(path: str, detail: str) -> Because:
    return Because(Reason.CONFLICT, detail, path)


def contradictions(body: dict[str, Any]) -> Iterator[Because]:
    """Contradictions within one receipt that satisfies its schema."""
    cell, model, evidence = body["cell"], body["model_artifact"], body["evidence"]
    for key in ("family", "checkpoint_digest", "architecture_digest", "dtype"):
        # Receipts of before the architecture was recorded have it in neither place.
        if cell["model_artifact"].get(key) != model.get(key):
            yield _conflict(f"$.model_artifact.{key}", "differs from the cell's")
    if body["execution"]["processes"] != len(evidence["processes"]):
        yield _conflict("$.execution.processes", f"{len(evidence['processes'])} left evidence")
    yield from _times(body["execution"])
    if cell["device"]["threads"] != evidence["environment"]["threads"]:
        yield _conflict("$.evidence.environment.threads", "differs from the cell's")
    bound = {f"{s['name']}@{s['version']}" for s in cell["structures"]}
    used = {impl["structure"] for impl in cell["impls"]}
    if bound != used:
        yield _conflict("$.cell.impls", "serve other structures than the cell binds")
    for i, run in enumerate(evidence["path"]):
        if len(run["expected"]) != cell["precision"]["seams"]:
            yield _conflict(f"$.evidence.path[{i}].expected", "has not one entry for each seam")
    yield from _frames(body)
    earlier = {attempt["digest"] for attempt in body["attempts"]}
    if len(earlier) != len(body["attempts"]):
        yield _conflict("$.attempts", "an attempt is listed twice")
    if body["supersedes"] is not None and body["supersedes"] not in earlier:
        yield _conflict("$.supersedes", "is not among the earlier attempts")


def _times(execution: dict[str, Any]) -> Iterator[Because]:
    try:
        ordered = instant(execution["started_at"]) <= instant(execution["ended_at"])
    except ValueError as error:
        yield _conflict("$.execution", f"no such time: {error}")
        return
    if not ordered:
        yield _conflict("$.execution.ended_at", "is before the start")


def _frames(body: dict[str, Any]) -> Iterator[Because]:
    workload, parity = body["workload"], body["evidence"]["parity"]
    fitted = {frame["id"] for frame in workload["frames"]}
    held_out = {frame["id"] for frame in workload["held_out"]}
    contents = {frame["digest"] for frame in workload["frames"]}
    if fitted & held_out or contents & {frame["digest"] for frame in workload["held_out"]}:
        yield _conflict("$.workload.held_out", "overlaps the frames to calibrate with")
    expected = held_out if parity["label"] == "held_out" else fitted
    size = {f["id"]: f["positions"] for f in (*workload["frames"], *workload["held_out"])}
    for when in ("before", "after"):
        for i, window in enumerate(parity[when]):
            where = f"$.evidence.parity.{when}[{i}]"
            if window["frame"] not in expected:
                yield _conflict(f"{where}.frame", f"is no {parity['label']} frame")
            elif window.get("positions", 0) > size[window["frame"]]:
                yield _conflict(f"{where}.positions", "more than the frame has")
