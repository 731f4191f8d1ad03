"""``flashrt ledger``: what ran."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashrt_cli.output import (
    Case,
    ExitCode,
    FormatOption,
    Outcome,
    Output,
    Problem,
    emit,
    finish,
    problem_of,
)

DEFAULT_LEDGER = Path(".flashrt/ledger.jsonl")


def ledger(
    path: Annotated[Path, typer.Argument(help="A ledger file (JSON Lines).")] = DEFAULT_LEDGER,
    execution: Annotated[
        str | None,
        typer.Option(
            "--execution",
            metavar="EXEC",
            help="An execution of the lab, by file or digest: positions reused, recomputed, moved.",
        ),
    ] = None,
    fmt: FormatOption = None,
) -> None:
    """Say what ran, how often, and what fell back."""
    if execution is not None:
        from flashrt_cli.lab_ledger import account

        if path != DEFAULT_LEDGER:
            raise typer.BadParameter("a ledger file and --execution are two questions: ask one")
        emit(account(execution), fmt)
        return
    from flashrt.report.ledger_file import (
        adapter_table,
        judge,
        read_ledger,
        seam_table,
        stage_table,
    )
    from flashrt_runtime.reason import Because, Reason

    runs = read_ledger(path)
    problems = judge(path, runs)
    kept = [run for run in runs if run.kept_host]
    warnings: list[Problem] = []
    for run in runs:
        noted = [Because.from_record(r) for r in run.record["reasons"]]
        if run in kept and not noted:
            noted = [Because(Reason.UNKNOWN_CELL, "no route fitted and the host was kept")]
        warnings += [problem_of(because, str(path), run.line) for because in noted]
    bad = {problem.line for problem in problems}
    cases = [
        Case(
            seam["seam"],
            Outcome.FAILED if line in bad else Outcome.PASSED,
            "; ".join(p.what for p in problems if p.line == line),
            f"run {index}",
        )
        for index, run in enumerate(runs, start=1)
        for line, seam in (*run.seams, *run.adapters)
    ]
    cases += [
        Case(f"run at line {run.line}", Outcome.NOT_MEASURED, "the host ran, no route fitted")
        for run in kept
    ]
    lines = [
        f"run {index}: release {run.record['release'] or 'none'}, policy {run.record['policy']}, "
        f"state {run.record['state']}"
        for index, run in enumerate(runs, start=1)
    ]
    clean = not problems and not kept
    lines.append("clean: every seam ran its implementation" if clean else "not clean")
    emit(
        Output(
            title=str(path),
            tables=[
                made
                for made in (seam_table(runs), adapter_table(runs), stage_table(runs))
                if made.rows
            ],
            lines=lines,
            data={
                "clean": clean,
                "runs": [
                    {
                        **run.record,
                        "seams": [seam for _, seam in run.seams],
                        "adapters": [adapter for _, adapter in run.adapters],
                        "stages": [stage for _, stage in run.stages],
                    }
                    for run in runs
                ],
            },
            problems=problems,
            warnings=warnings,
            cases=cases,
        ),
        fmt,
    )
    codes = [ExitCode.GATE_FAILED] if problems else []
    finish(*codes, *([ExitCode.NOT_MEASURED] if kept else []))
