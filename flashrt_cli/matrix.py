"""``flashrt matrix``: cells and their states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashrt.release.state import State
from flashrt_cli.options import DEFAULT_STORE, StoreOption, empty, open_store, open_verifier
from flashrt_cli.output import (
    Case,
    ExitCode,
    FormatOption,
    Outcome,
    Output,
    Problem,
    emit,
    finish,
)

if TYPE_CHECKING:
    from flashrt.release.matrix import Matrix, Row

RequireOption = Annotated[
    State | None, typer.Option("--require", help="Exit 1 when a cell promises less.")
]
ExpectOption = Annotated[
    State | None, typer.Option("--expect", help="Exit 1 when a cell has any other state.")
]


def _below(row: Row, require: State | None, expect: State | None) -> str | None:
    if require is not None and not row.state.meets(require):
        return f"{row.state.value} is below {require.value}"
    if expect is not None and row.state is not expect:
        return f"{row.state.value}, and {expect.value} was expected"
    return None


def _problem(row: Row, what: str) -> Problem:
    from flashrt_runtime.reason import Reason

    first = row.reasons[0] if row.reasons else None
    detail = f"{what}: {first.detail}" if first else what
    return Problem("", 1, row.label, detail, "", first.reason if first else Reason.LOSS)


def render(found: Matrix, require: State | None, expect: State | None) -> Output:
    """The matrix as a result, with one test case a cell."""
    cases, problems = [], []
    for row in found.rows:
        below = _below(row, require, expect)
        if below:
            problems.append((row.state.order, _problem(row, below)))
            outcome = Outcome.FAILED
        else:
            outcome = Outcome.NOT_MEASURED if row.state is State.UNKNOWN else Outcome.PASSED
        cases.append(Case(row.label, outcome, below or row.state.value, row.cell_digest))
    return Output(
        title="cells",
        tables=[found.table()],
        lines=[found.promise()],
        data={
            "cells": [row.record() for row in found.rows],
            "expected_false_promotions": found.expected_false(),
        },
        problems=[p for _, p in sorted(problems, key=lambda item: item[0])],
        cases=cases,
    )


def matrix(
    *,
    store: StoreOption = DEFAULT_STORE,
    require: RequireOption = None,
    expect: ExpectOption = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Write the table to this Markdown file.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the table to this HTML file.")
    ] = None,
    fmt: FormatOption = None,
) -> None:
    """Tabulate cells, their states and their intervals."""
    from flashrt.document.atomic import write_atomic
    from flashrt.release.matrix import of_source
    from flashrt.report import page

    found = of_source(open_store(store), open_verifier())
    if markdown is not None:
        write_atomic(markdown, page.matrix_markdown(found).encode())
    if html is not None:
        write_atomic(html, page.matrix_html(found).encode())
    result = render(found, require, expect)
    if not found.rows:
        result = replace(result, lines=[*result.lines, empty(store)])
    emit(result, fmt)
    codes = [ExitCode.GATE_FAILED] if result.problems else []
    if not found.rows:
        codes.append(ExitCode.NOT_MEASURED)
    finish(*codes)
