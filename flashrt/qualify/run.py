"""The qualification: plans in, fresh processes, one judgement, receipts out."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from flashrt.gate.thresholds import Thresholds, declare
from flashrt.qualify.cell import build_cell
from flashrt.qualify.cost import step_cost
from flashrt.qualify.environment import environment
from flashrt.qualify.job import Job
from flashrt.qualify.merge import merge
from flashrt.qualify.prepare import Prepared
from flashrt.qualify.processes import run_process
from flashrt.qualify.request import Budget, CellRequest
from flashrt.qualify.result import CellResult
from flashrt.qualify.unserved import unserved
from flashrt.receipt.build import build_receipt, build_unmeasured, cell_digest
from flashrt.record import ExecutionBackend, ExperimentExecution, FrameRecord, WallClock, judged_on
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    from flashrt.receipt.store import Store

Say = Callable[[str], None]
RunProcess = Callable[[Job, Say], dict[str, Any]]


@dataclass(frozen=True)
class Stated:
    """What the caller states: a margin above the spec's, floors, and what words were typed."""

    margin: float | None = None
    floors: Mapping[str, float] | None = None
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Planned:
    """One cell that can be measured: its identity, its plan and its thresholds."""

    request: CellRequest
    cell: dict[str, Any]
    plan: dict[str, Any]
    thresholds: Thresholds
    attempts: tuple[dict[str, Any], ...]
    heads: tuple[str, ...]  # receipts of the cell that were live when it was planned


@dataclass(frozen=True)
class Run:
    """One qualification: what was prepared, where receipts go, and what may be spent."""

    prepared: Prepared
    store: Store
    budget: Budget
    stated: Stated
    started: str


def plan_cells(run: Run, requests: Sequence[CellRequest]) -> tuple[list[Planned], list[CellResult]]:
    """What can be measured, and what is refused before anything runs, with reasons.

    Raises :class:`Refusal` (THRESHOLD) for a margin below the spec's or an unknown floor.
    """
    from flashrt.receipt.spec_gates import catalog_gates
    from flashrt_runtime.facts import device_facts, software_facts

    planned: list[Planned] = []
    refused: list[CellResult] = []
    prepared, stated = run.prepared, run.stated
    device = {**device_facts("cpu"), "threads": run.budget.threads}
    wanted = dict.fromkeys(requests)
    for request in wanted:
        try:
            plan = prepared.plan(request)
        except Refusal as refusal:
            refused.append(CellResult(request, None, (refusal.because(),)))
            continue
        if not any(s["outcome"] == "bind" for s in plan["seams"]):
            refused.append(CellResult(request, None, unserved(plan, request)))
            continue
        cell = build_cell(request, plan, device, software_facts())
        pipeline = cell["pipeline"]
        gates = catalog_gates(pipeline["name"], pipeline["version"])
        if gates is None:
            raise Refusal(Reason.STRUCTURE, "the pipeline's spec is gone", subject=str(pipeline))
        digest = cell_digest(cell)
        attempts, heads = run.store.attempts(digest), run.store.heads(digest)
        thresholds = declare(
            gates,
            margin=stated.margin,
            floors=stated.floors,
            attempt=len(attempts) + 1,
            processes=run.budget.processes,
            cells=len(wanted),
        )
        live = tuple(head["digest"] for head in heads)
        planned.append(Planned(request, cell, plan, thresholds, tuple(attempts), live))
    return planned, refused


def qualify(
    run: Run,
    requests: Sequence[CellRequest],
    say: Say,
    process: RunProcess = run_process,
) -> list[CellResult]:
    """Measure every cell in fresh processes and store one receipt for each.

    Results are in the order of the requests, each cell once.

    Plans are stored before anything runs. On Ctrl-C, or when a process dies, an INCOMPLETE record
    is stored for every cell that has no receipt, and the exception goes on.
    """
    planned, results = plan_cells(run, requests)
    if not planned:
        return results
    for item in planned:
        run.store.put("plan", item.plan)
    fragments: list[dict[str, Any]] = []
    judged: list[CellResult] = []
    failures: list[Refusal] = []
    processes = run.budget.processes
    try:
        for index in range(processes):
            say(f"process {index + 1} of {processes}")
            job = _job(run, planned, index)
            fragments.append(process(job, _prefixed(say, index, processes)))
        for item in planned:
            try:
                judged.append(_judge(run, item, fragments))
            except Refusal as refusal:  # a full disk must not cost the other cells their receipts
                failures.append(refusal)
    except BaseException as error:
        detail = str(error) if isinstance(error, Refusal) else "interrupted"
        because = Because(Reason.INCOMPLETE, detail, f"process {len(fragments) + 1}")
        done = {result.request for result in judged}
        with _undisturbed():
            for item in planned:
                if item.request not in done:
                    _store_incomplete(run, item, because, len(fragments))
        raise
    if failures:
        raise failures[0]
    order = list(dict.fromkeys(requests))
    return sorted(results + judged, key=lambda result: order.index(result.request))


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold back Ctrl-C while the records of an interrupted measurement are written."""
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prefixed(say: Say, process: int, processes: int) -> Say:
    """Progress with the process it is of and the seconds since that process was started."""
    started = time.monotonic()

    def tell(text: str) -> None:
        say(f"[{process + 1}/{processes} {time.monotonic() - started:4.0f} s] {text}")

    return tell


def now() -> str:
    """This moment, RFC 3339, UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _job(run: Run, planned: Sequence[Planned], index: int) -> Job:
    prepared = run.prepared
    return Job(
        host=prepared.host_reference,
        frames=prepared.frames_reference,
        cells=tuple(item.request for item in planned),
        plans={item.request.label: item.plan for item in planned},
        budget=run.budget,
        rules={item.request.label: item.thresholds.record() for item in planned},
        held_out=prepared.held_out,
        seed=prepared.seed,
        process=index,
    )


def _execution(run: Run, processes: int) -> dict[str, Any]:
    from importlib import metadata

    backend = ExecutionBackend(
        compute_device="cpu",
        device_state_storage="host memory",
        host_state_storage="host memory",
        library=f"torch {metadata.version('torch')}",
        precision="float32",
    )
    return ExperimentExecution(
        id=secrets.token_hex(8),
        tool_version=metadata.version("flashrt"),
        command=run.stated.command,
        backend=backend,
        processes=processes,
        wall=WallClock(run.started, now()),
    ).record()


def _store_incomplete(run: Run, item: Planned, because: Because, done: int) -> None:
    body = build_unmeasured(
        kind="incomplete",
        cell=item.cell,
        request={"cell": item.request.text},
        execution=_execution(run, done),
        reasons=[because],
        environment=environment(run.budget.threads),
    )
    run.store.put("incomplete", body)


def _judge(run: Run, item: Planned, fragments: Sequence[Mapping[str, Any]]) -> CellResult:
    mine = [fragment[item.request.label] for fragment in fragments]
    cost = step_cost(item.plan["seams"], item.request.rows, item.cell["device"])
    seen = environment(run.budget.threads, item.cell["device"]["class"])
    evidence = merge(mine, seen, cost, "held_out")
    judged = [FrameRecord.from_record(frame) for frame in mine[0]["judged"]]
    receipt = build_receipt(
        cell=item.cell,
        plan=item.plan["digest"],
        execution=_execution(run, len(evidence["processes"])),
        model_artifact=run.prepared.artifact.record(),
        workload=judged_on(run.prepared.workload, judged).record(),
        evidence=evidence,
        thresholds=item.thresholds,
        attempts=item.attempts,
        supersedes=item.heads[-1] if item.heads else None,
        revokes=item.heads[:-1],
    )
    run.store.put("qualification", receipt)
    return CellResult(item.request, receipt)
