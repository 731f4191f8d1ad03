"""Reads a ledger file and judges it: zero calls is not clean, and neither is a fallback."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashrt.document import schema
from flashrt.document.canonical import MAX_BYTES, parse_json
from flashrt.document.problem import InputError, Problem
from flashrt.document.read import read_regular
from flashrt.report.table import Table
from flashrt_runtime.reason import Reason

MAX_LINES = 1_000_000


@dataclass(frozen=True)
class Run:
    """One activation with its seams, adapters and stages, and the line that each came from."""

    line: int
    record: dict[str, Any]
    seams: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    stages: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    adapters: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def of(self, kind: str) -> list[tuple[int, dict[str, Any]]]:
        """Where lines of a kind are kept: ``seam``, ``adapter`` or ``stage``."""
        return {"seam": self.seams, "adapter": self.adapters, "stage": self.stages}[kind]

    @property
    def kept_host(self) -> bool:
        """Whether the caller's policy kept the host because no route fitted."""
        return bool(self.record["state"] == "host")


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        data = read_regular(path, MAX_BYTES)
    except InputError as error:
        if path.exists():
            raise
        raise InputError(
            str(path), 1, "$", "there is no ledger here",
            "write one with `active.export(path)` in the program that ran the model, "
            "or run `make qualify`",
        ) from error  # fmt: skip
    problems: list[Problem] = []
    found = []
    for number, line in enumerate(data.split(b"\n")[: MAX_LINES + 1], start=1):
        if not line.strip():
            continue
        try:
            record = parse_json(line, str(path))
        except InputError as error:
            first = error.problems[0]
            problems.append(Problem(str(path), number, first.path, first.what))
            continue
        bad = schema.problems(record, "ledger_line", file=str(path))
        problems += [Problem(p.file, number, p.path, p.what, p.do, p.reason) for p in bad]
        found.append((number, record))
    if problems:
        raise InputError.of(problems)
    yield from found


def read_ledger(path: Path) -> list[Run]:
    """The runs of a ledger file. Raises :class:`InputError` that names every bad line."""
    runs: list[Run] = []
    for number, record in _records(path):
        if record["kind"] == "run":
            runs.append(Run(number, record))
        elif not runs:
            raise InputError(str(path), number, "$.kind", "comes before any run")
        else:
            runs[-1].of(record["kind"]).append((number, record))
    if not runs:
        raise InputError(str(path), 1, "$", "the ledger is empty: nothing ran")
    return runs


def judge(path: Path, runs: list[Run]) -> list[Problem]:
    """Every fallback and everything that never ran, fallbacks first, then by line."""
    fell: list[Problem] = []
    idle: list[Problem] = []
    for run in runs:
        for number, seam in run.seams:
            where, name = str(path), seam["seam"]
            if seam["fallbacks"] > 0:
                why = seam["last_reason"] or "no reason was recorded"
                what = f"{name} fell back to the host {seam['fallbacks']} times: {why}"
                fell.append(Problem(where, number, "$.fallbacks", what, "", Reason.FALLBACK))
            if seam["calls"] + seam["replayed"] == 0:
                what = f"{name} never ran its implementation"
                idle.append(Problem(where, number, "$.calls", what, "", Reason.NEVER_CALLED))
        for number, one in run.adapters:
            name = f"{one['seam']}, its adapter in {one['host']},"
            if one["fallbacks"] > 0:
                why = one["last_reason"] or "no reason was recorded"
                what = f"{name} left {one['fallbacks']} calls to the host's own code: {why}"
                fell.append(Problem(str(path), number, "$.fallbacks", what, "", Reason.FALLBACK))
            if one["calls"] + one["replayed"] == 0:
                what = f"{name} never ran its core"
                idle.append(Problem(str(path), number, "$.calls", what, "", Reason.NEVER_CALLED))
        for number, stage in run.stages:
            if stage["replays"] == 0:
                what = f"stage {stage['stage']} was captured and never replayed"
                idle.append(Problem(str(path), number, "$.replays", what, "", Reason.NEVER_CALLED))
        if not run.seams and not run.kept_host:
            what = "the run bound no seam"
            idle.append(Problem(str(path), run.line, "$", what, "", Reason.NEVER_CALLED))
    return fell + idle


_CODE = re.compile(r" \[FRT[0-9]{3} [A-Z0-9_]+\]$")


def _why(one: Mapping[str, Any]) -> str:
    """Why the host ran, the last time. A call that is the host's by design refused nothing: its
    reason carries no code there."""
    told: str | None = one["last_reason"]
    if told is None or one["fallbacks"] > 0:
        return told or ""
    return f"by design: {_CODE.sub('', told)}"


def seam_table(runs: list[Run]) -> Table:
    """One row a seam: what ran it, and how often."""
    every = [seam for run in runs for _, seam in run.seams]
    chained = ("chain",) if any("chain" in seam for seam in every) else ()
    counts = ("calls", "replayed", "dispatched", "fallbacks", "reason")
    rows = [
        (
            str(index),
            seam["seam"],
            *(_chain(seam) for _ in chained),
            f"{seam['structure']} {seam['backend']}/{seam['form']}",
            str(seam["calls"]),
            str(seam["replayed"]),
            str(seam["dispatched"]),
            str(seam["fallbacks"]),
            _why(seam),
        )
        for index, run in enumerate(runs, start=1)
        for _, seam in run.seams
    ]
    return Table(("run", "seam", *chained, "impl", *counts), rows, "seams")


def _chain(seam: dict[str, Any]) -> str:
    """The chain that a seam is taken out with, and whether that happened."""
    return f"{seam.get('chain', '')}{' (taken out)' if 'restored' in seam else ''}"


def adapter_table(runs: list[Run]) -> Table:
    """One row an adapter: how often its core ran, and how often the host's own code did."""
    columns = ("run", "seam", "member", "host", "calls", "replayed", "dispatched", "fallbacks")
    rows = [
        (
            str(index),
            *(str(one[name]) for name in columns[1:]),
            _why(one),
        )
        for index, run in enumerate(runs, start=1)
        for _, one in run.adapters
    ]
    return Table((*columns, "reason"), rows, "adapters")


def stage_table(runs: list[Run]) -> Table:
    """One row a captured stage."""
    rows = [
        (
            str(index),
            stage["stage"],
            " → ".join(stage["form"]),
            str(stage["replays"]),
            str(len(stage["operators"])),
            str(sum(stage["operators"].values())),
        )
        for index, run in enumerate(runs, start=1)
        for _, stage in run.stages
    ]
    return Table(("run", "stage", "form", "replays", "seams", "operators"), rows, "stages")
