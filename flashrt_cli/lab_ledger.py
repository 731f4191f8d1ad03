"""``flashrt ledger --execution``: where the positions of a lab execution came from."""

from __future__ import annotations

from flashrt_cli.lab_options import exactly, us
from flashrt_cli.output import Case, Outcome, Output, Table

_COUNTS = (
    "reused_positions",
    "computed_positions",
    "recomputed_positions",
    "transferred_positions",
    "transferred_bytes",
)


def account(said: str) -> Output:
    """The ledger of the record that a file, or a digest of the default store, names.

    Reused positions were taken from a state, and those of them that were moved first are
    transferred; recomputed ones were computed although they had been before. Raises ``InputError``.
    """
    from flashrt_cli.lab_options import DEFAULT_STORE, read_named

    stored = read_named(said, DEFAULT_STORE)
    rows = stored.record.ledger
    total = {name: sum(getattr(row, name) for row in rows) for name in _COUNTS}
    cells = [
        (row.request_id, *(str(getattr(row, name)) for name in _COUNTS), us(row.latency_us))
        for row in rows
    ]
    cells.append(("all", *(str(total[name]) for name in _COUNTS), "-"))
    columns = ("request", *(name.replace("_positions", "") for name in _COUNTS), "latency us")
    reused = total["reused_positions"]
    run = total["computed_positions"] + total["recomputed_positions"]
    said_of = f"{reused} positions were reused and {run} run"
    lines = [f"{said_of}; a miss is exact too: only reused positions show that reuse was right"]
    return Output(
        title=stored.name,
        tables=[Table(tuple(c.replace("_", " ") for c in columns), cells)],
        lines=lines if reused else [f"{said_of}: nothing was reused"],
        data={
            "execution": stored.digest,
            "requests": [
                {"request_id": row.request_id}
                | {name: getattr(row, name) for name in _COUNTS}
                | {"latency_us": exactly(row.latency_us)}
                for row in rows
            ],
            "total": total,
        },
        cases=[
            Case(row.request_id, Outcome.PASSED, f"{row.reused_positions} reused", stored.name)
            for row in rows
        ],
    )
