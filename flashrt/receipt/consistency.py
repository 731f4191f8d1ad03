"""Facts that a receipt states twice, and facts that exclude each other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from flashrt.receipt.instant import instant
from flashrt.record import WallClock
from flashrt_runtime.reason import Because, Reason, Refusal


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
    yield from _machine(cell, evidence["environment"])
    yield from _software(body)
    yield from _races(cell, evidence)
    yield from _copies(evidence["processes"])
    yield from _windows(evidence)
    bound = {f"{s['name']}@{s['version']}" for s in cell["structures"]}
    used = {impl["structure"] for impl in cell["impls"]}
    if bound != used:
        yield _conflict("$.cell.impls", "serve other structures than the cell binds")
    for i, run in enumerate(evidence["path"]):
        if len(run["expected"]) != cell["precision"]["seams"]:
            yield _conflict(f"$.evidence.path[{i}].expected", "has not one entry for each seam")
        yield from _chains(cell["precision"].get("chains", []), run, f"$.evidence.path[{i}]")
    yield from _frames(body)
    yield from _history(body)


def _copies(processes: list[dict[str, Any]]) -> Iterator[Because]:
    """No two races take the same nanoseconds, sample for sample: one of them was never run."""
    seen: dict[str, str] = {}
    for i, run in enumerate(processes):
        for name in ("null", "race"):
            where = f"$.evidence.processes[{i}].{name}.pairs"
            first = seen.setdefault(str(run[name]["pairs"]), where)
            if first != where and run[name]["pairs"]:
                yield _conflict(where, f"a copy of {first}: every sample is the same")


def _chains(stated: list[dict[str, Any]], run: dict[str, Any], where: str) -> Iterator[Because]:
    """The chains that a process attached are the cell's, with every member of each."""
    attached = {chain["producer"]: set(chain["readers"]) for chain in run.get("chains", [])}
    for chain in stated:
        producer, readers = chain["producer"], attached.pop(chain["producer"], None)
        members = {producer, *chain["readers"]}
        if readers is None:
            yield _conflict(f"{where}.chains", f"lost the cell's chain of {producer}")
            continue
        lost = sorted(set(chain["readers"]) - readers) + sorted(members - set(run["expected"]))
        if lost:
            yield _conflict(f"{where}.chains", f"the chain of {producer} lost {lost[0]}")
        elif readers - members:
            more = sorted(readers - members)[0]
            yield _conflict(f"{where}.chains", f"the chain of {producer} has {more} besides")
    for producer in sorted(attached):
        yield _conflict(f"{where}.chains", f"has a chain of {producer}, the cell has none")


def _machine(cell: dict[str, Any], environment: dict[str, Any]) -> Iterator[Because]:
    """A cell's device is the environment's own CPU; arms on CUDA, and no others, have a driver."""
    device, driver = cell["device"], environment["driver"]
    if device["class"] == "cuda" and driver is None:
        yield _conflict("$.evidence.environment.driver", "a CUDA device has one")
    if device["class"] == "cpu" and driver is not None:
        yield _conflict("$.evidence.environment.driver", "arms on a CPU have none")
    if device["class"] != "cpu":
        return
    if device["threads"] != environment["threads"]:
        yield _conflict("$.evidence.environment.threads", "differs from the cell's")
    if environment["cpu"] is not None and device["name"] != environment["cpu"]:
        yield _conflict("$.evidence.environment.cpu", "differs from the cell's device")


def _software(body: dict[str, Any]) -> Iterator[Because]:
    """Versions stand in the cell, the environment and the execution."""
    software, execution = body["cell"]["software"], body["execution"]
    packages = body["evidence"]["environment"]["packages"]
    for name in sorted(set(software) & set(packages)):
        if software[name] != packages[name]:
            where = f"$.evidence.environment.packages.{name}"
            yield _conflict(where, f"the cell has {software[name]}")
    library, _, version = execution["backend"]["library"].partition(" ")
    if version and software.get(library) not in (None, version):
        yield _conflict(
            "$.execution.backend.library", f"the cell has {library} {software[library]}"
        )
    if software.get("flashrt") not in (None, execution["tool_version"]):
        yield _conflict("$.execution.tool_version", f"the cell has {software['flashrt']}")


def _races(cell: dict[str, Any], evidence: dict[str, Any]) -> Iterator[Because]:
    replays = {run["process"]: run["replays"] for run in evidence["path"]}
    for i, run in enumerate(evidence["processes"]):
        timed = len(run["race"]["pairs"]) * run["race"]["repeat"]
        if replays.get(run["process"], timed) < timed:
            where = f"$.evidence.path[{_index(evidence['path'], run['process'])}].replays"
            yield _conflict(where, f"processes[{i}] timed {timed} runs of the treated arm")
    for i, host in enumerate(evidence["dtype_hosts"]):
        if host["dtype"] == cell["model_artifact"]["dtype"]:
            yield _conflict(f"$.evidence.dtype_hosts[{i}].dtype", "is the host's own")


def _windows(evidence: dict[str, Any]) -> Iterator[Because]:
    """Every arm in every process is captured over the same windows."""
    checks = [(i, one) for i, one in enumerate(evidence.get("window_check", ()))]
    named = [(i, {*c["windows"], *c["unchanged"]}) for i, c in checks if c["refused"] is None]
    for i, names in named:
        if names != named[0][1]:
            yield _conflict(f"$.evidence.window_check[{i}].windows", "differ from the first arm's")


def _index(runs: list[dict[str, Any]], process: int) -> int:
    return next(i for i, run in enumerate(runs) if run["process"] == process)


def _history(body: dict[str, Any]) -> Iterator[Because]:
    """Earlier attempts are each listed once, oldest first, and ended before this one did."""
    attempts = body["attempts"]
    earlier = {attempt["digest"] for attempt in attempts}
    if len(earlier) != len(attempts):
        yield _conflict("$.attempts", "an attempt is listed twice")
    if body["supersedes"] is not None and body["supersedes"] not in earlier:
        yield _conflict("$.supersedes", "is not among the earlier attempts")
    if body["supersedes"] is not None and body["supersedes"] in body["revokes"]:
        yield _conflict("$.revokes", "withdraws the receipt that is superseded")
    try:
        ends = [instant(attempt["ended_at"]) for attempt in attempts]
        ends.append(instant(body["execution"]["ended_at"]))
    except ValueError as error:
        yield _conflict("$.attempts", f"no such time: {error}")
        return
    for i, (one, next_one) in enumerate(pairwise(ends)):
        if one > next_one:
            yield _conflict(f"$.attempts[{i}].ended_at", "is after the end of the next one")


def _times(execution: dict[str, Any]) -> Iterator[Because]:
    try:
        clock = WallClock.from_record(execution)
    except Refusal as refusal:
        yield _conflict("$.execution", refusal.what)
        return
    if not clock.ordered:
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
    names = [frame["id"] for frame in workload["held_out"]]
    if len(set(names)) != len(names):
        yield _conflict("$.workload.held_out", "a frame is listed twice")
