"""``flashrt lab compare``: where two executions part, and whether their outputs are identical."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashrt_cli.lab_options import DEFAULT_STORE, LabStoreOption, exactly, read_named, us
from flashrt_cli.output import FormatOption, Output, Table, emit

if TYPE_CHECKING:
    from flashrt.lab.execution import Answer, Comparison, Parting
    from flashrt.lab.records import CacheEvent, RunOutcome

ExecArgument = Annotated[str, typer.Argument(metavar="EXEC", help="A record's file or digest.")]


def compare(
    first: ExecArgument,
    second: ExecArgument,
    store: LabStoreOption = DEFAULT_STORE,
    fmt: FormatOption = None,
) -> None:
    """Find the first diverging event of two executions, and whether outputs are identical."""
    from flashrt.lab.execution import compare as compared

    one, other = read_named(first, store), read_named(second, store)
    found = compared(one, other)
    same, made = found.scores
    outputs = "identical" if found.outputs_identical else "not identical"
    lines = [
        f"outputs: {outputs}; logits equal in {same} of {made} selections that both made",
        _parted("first diverging event", found.parting),
    ]
    if found.parting is not None:
        lines.append(_parted("apart from time", found.untimed))
    emit(
        Output(
            title=f"{one.name} against {other.name}",
            tables=_tables(found),
            lines=lines,
            data=_data(found) | {"first": one.digest, "second": other.digest},
        ),
        fmt,
    )


def _tables(found: Comparison) -> list[Table]:
    asked = [(one.path.removeprefix("$."), one.first, one.second) for one in found.consumed]
    bound = [(one.subject, one.detail) for one in found.bindings]
    rows = [
        (
            one.request_id, _ended(one.first), _ended(one.second),
            *map(us, one.latency_us), _output(one),
        )
        for one in found.answers
    ]  # fmt: skip
    columns = ("request", "first", "second", "latency us", "latency us", "output")
    tables = [
        Table(("what", "first", "second"), asked, "What was asked differently"),
        Table(("what", "how"), bound, "Another binding"),
    ]
    return [*(t for t in tables if t.rows), Table(columns, rows)]


def _output(answer: Answer) -> str:
    """Whether both published the same; what was refused in both published nothing to compare."""
    if not answer.identical:
        return "differs"
    said = [one.published_tokens for one in (answer.first, answer.second) if one is not None]
    return "identical" if any(said) else "none in both"


def _ended(outcome: RunOutcome | None) -> str:
    if outcome is None:
        return "(not there)"
    return f"{outcome.published_tokens} tokens, {outcome.stop_reason}"


def _parted(name: str, parting: Parting | None) -> str:
    if parting is None:
        return f"{name}: none"
    sides = " | ".join(_event(event) for event in (parting.first, parting.second))
    return f"{name}: {parting.number}: {sides}"


def _event(event: CacheEvent | None) -> str:
    if event is None:
        return "(ended before)"
    who = f" {event.request_id}" if event.request_id else ""
    return f"{event.kind}{who} at {us(event.time_us)} us"


def _data(found: Comparison) -> dict[str, Any]:
    return {
        "outputs_identical": found.outputs_identical,
        "first_diverging_event": found.parting.record() if found.parting else None,
        "first_diverging_untimed": found.untimed.record() if found.untimed else None,
        "logits_equal": found.scores[0],
        "logits_compared": found.scores[1],
        "consumed": [one.record() for one in found.consumed],
        "bindings": [one.record() for one in found.bindings],
        "requests": [_answer(one) for one in found.answers],
    }


def _answer(one: Answer) -> dict[str, Any]:
    return {
        "request_id": one.request_id,
        "identical": one.identical,
        "first_latency_us": exactly(one.latency_us[0]),
        "second_latency_us": exactly(one.latency_us[1]),
    }
