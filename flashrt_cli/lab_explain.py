"""``flashrt lab explain``: a request's causal chain, summing exactly to its latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashrt_cli.lab_options import DEFAULT_STORE, LabStoreOption, exactly, read_named, us
from flashrt_cli.output import FormatOption, Output, Table, emit

if TYPE_CHECKING:
    from flashrt.lab.execution import Segment
    from flashrt.lab.records import CacheEvent


def explain(
    execution: Annotated[str, typer.Argument(metavar="EXEC", help="A record's file or digest.")],
    request: Annotated[str, typer.Argument(help="The request's name.")],
    store: LabStoreOption = DEFAULT_STORE,
    fmt: FormatOption = None,
) -> None:
    """Print the causal chain of a request; its segments sum exactly to the latency."""
    from flashrt.lab.execution import explain as explained

    stored = read_named(execution, store)
    chain = explained(stored, request)
    rows = [
        (
            f"{one.last.event_id}", one.last.kind, us(one.last.time_us), us(one.us),
            one.spent if one.us else "", _detail(one.last), _also(one),
        )
        for one in chain.segments
    ]  # fmt: skip
    first = chain.arrival
    rows.insert(0, (f"{first.event_id}", first.kind, us(first.time_us), "-", "", "", ""))
    spent = chain.spent()
    total = chain.latency_us
    shares = [(name, us(time), f"{float(time / total):.1%}") for name, time in spent.items()]
    columns = ("event", "kind", "at us", "took us", "spent on", "what", "caused also by")
    emit(
        Output(
            title=f"{request} in {stored.name}",
            tables=[
                Table(columns, rows),
                Table(("spent on", "us", "share"), shares, "Where the time went"),
            ],
            lines=[
                f"{len(chain.segments)} segments sum to {chain.total_us} us, exactly the latency "
                f"from {first.kind} to {chain.end.kind}"
            ],
            data={
                "request_id": request,
                "digest": stored.digest,
                "latency_us": exactly(total),
                "spent_us": {name: exactly(time) for name, time in spent.items()},
                "segments": [_segment(one) for one in chain.segments],
            },
        ),
        fmt,
    )


def _detail(event: CacheEvent) -> str:
    said = [
        f"{event.positions} positions" if event.positions is not None else "",
        f"{event.bytes} bytes" if event.bytes is not None else "",
        event.place or "",
    ]
    return ", ".join(part for part in said if part)


def _also(one: Segment) -> str:
    return ", ".join(f"{e.event_id} {e.kind} {e.request_id or ''}".rstrip() for e in one.also)


def _segment(one: Segment) -> dict[str, Any]:
    return {
        "from": one.first.record(),
        "to": one.last.record(),
        "us": exactly(one.us),
        "spent": one.spent,
    }
