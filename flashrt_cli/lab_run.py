"""``flashrt lab run``: one arm of a design, executed and recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashrt_cli.lab_options import (
    DEFAULT_STORE,
    ArtifactOption,
    DesignArgument,
    LabStoreOption,
    exactly,
    open_model,
    us,
)
from flashrt_cli.output import Case, FormatOption, Outcome, Output, Table, emit

if TYPE_CHECKING:
    from pathlib import Path

    from flashrt.lab.execution import Setup, StoredExecution


def run(
    design: DesignArgument,
    *,
    arm: Annotated[
        str | None, typer.Option("--arm", help="Which arm; needed where there are several.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="CONTROL=SETTING",
            help="One more control, which the arm leaves open. Repeatable.",
        ),
    ] = None,
    artifact: ArtifactOption = None,
    store: LabStoreOption = DEFAULT_STORE,
    fmt: FormatOption = None,
) -> None:
    """Execute one arm of a design and keep the record."""
    from flashrt.lab.execution import ExecutionStore, execute, find_design
    from flashrt_cli.writable import require_folder

    setup = find_design(design).setup(arm)
    if settings:
        setup = _with(setup, settings)
    require_folder(store)
    stored = execute(setup, open_model(artifact))
    path = ExecutionStore(store).put(dict(stored.body))
    emit(shown(stored, path), fmt)


def _with(setup: Setup, settings: list[str]) -> Setup:
    from flashrt.document.problem import InputError
    from flashrt.lab.execution import assign, read_setting
    from flashrt.lab.records import ExecutionSpec

    added = []
    for said in settings:
        path, equals, text = said.partition("=")
        if not equals:
            raise InputError(f"--set {said}", 1, "$", "no = in it", "write CONTROL=SETTING")
        added.append(assign(path, read_setting(text)))
    return setup.added(ExecutionSpec(controls=tuple(added)))


def shown(stored: StoredExecution, path: Path) -> Output:
    """A record for a person and for a program: outcomes, positions, and where it lies."""
    record = stored.record
    outcomes, ledger = stored.outcomes, {row.request_id: row for row in record.ledger}
    rows = []
    for name, one in outcomes.items():
        row = ledger[name]
        positions = (row.reused_positions, row.computed_positions, row.recomputed_positions)
        counts = (one.published_tokens, *positions, row.transferred_positions)
        rows.append((name, one.stop_reason, *map(str, counts), us(row.latency_us), one.display))
    columns = (
        "request", "end", "published", "reused", "computed", "recomputed", "transferred",
        "latency us", "text",
    )  # fmt: skip
    said = [one.error for one in record.outcomes if one.error] + list(record.errors)
    clock = record.execution.virtual
    return Output(
        title=stored.name,
        tables=[Table(columns, rows)],
        lines=[
            *(f"{e.request_id or '-'}: {e.subject}: {e.message} ({e.rule})" for e in said),
            f"{len(record.events)} events, {len(record.computations)} computations, "
            f"{len(record.selections)} selections; "
            f"ended at {us(clock.ended_us if clock else None)} us of virtual time",
            f"record {path}",
        ],
        data=data_of(stored, path),
        cases=[
            Case(name, Outcome.PASSED, one.stop_reason, stored.name)
            for name, one in outcomes.items()
        ],
    )


def data_of(stored: StoredExecution, path: Path) -> dict[str, Any]:
    """What a program wants to know of a record without opening its file."""
    record = stored.record
    clock = record.execution.virtual
    return {
        "file": str(path),
        "digest": stored.digest,
        "id": record.execution.id,
        "design": record.design.record() if record.design else None,
        "ended_us": exactly(clock.ended_us if clock else None),
        "events": len(record.events),
        "outcomes": [one.record() for one in record.outcomes],
        "errors": [one.record() for one in record.errors],
        "ledger": [row.record() for row in record.ledger],
    }
