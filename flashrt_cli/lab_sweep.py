"""``flashrt lab sweep``: every arm of a design, each an execution of its own."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from flashrt_cli.lab_options import (
    DEFAULT_STORE,
    ArtifactOption,
    DesignArgument,
    LabStoreOption,
    exactly,
    open_model,
    us,
)
from flashrt_cli.output import FormatOption, Output, Table, emit

if TYPE_CHECKING:
    from flashrt.lab.execution import StoredExecution

SERVED = ("turn_end", "budget", "context_limit")  # outcomes that a latency is of


def sweep(
    design: DesignArgument,
    artifact: ArtifactOption = None,
    store: LabStoreOption = DEFAULT_STORE,
    fmt: FormatOption = None,
) -> None:
    """Execute every arm of a design, keep each record, and tabulate what differs."""
    from flashrt.lab.execution import ExecutionStore, execute, find_design
    from flashrt_cli.writable import require_folder

    found = find_design(design)
    require_folder(store)
    model, kept = open_model(artifact), ExecutionStore(store)
    done = [execute(found.setup(arm), model) for arm in found.arms]
    paths = [kept.put(dict(one.body)) for one in done]
    arms = [
        _measured(one, done[0]) | {"file": str(path)} for one, path in zip(done, paths, strict=True)
    ]
    emit(
        Output(
            title=f"{found.design.name}: {found.design.question}",
            tables=[_table(done, arms)],
            lines=[
                f"outputs are compared with those of {found.arms[0]}, the baseline",
                f"records {' '.join(path.stem[:12] for path in paths)} in {store}",
            ],
            data={"design": found.design.name, "digest": found.digest, "arms": arms},
        ),
        fmt,
    )


def _measured(one: StoredExecution, baseline: StoredExecution) -> dict[str, Any]:
    """What an arm amounts to; times are exact."""
    from flashrt.lab.execution import compare

    record = one.record
    ledger = record.ledger
    clock = record.execution.virtual
    kinds = Counter(event.kind for event in record.events)
    ended = {outcome.request_id: outcome.stop_reason for outcome in record.outcomes}
    served = [row.latency_us for row in ledger if ended.get(row.request_id) in SERVED]
    differ = [a.request_id for a in compare(baseline, one).answers if not a.identical]
    return {
        "arm": record.design.arm if record.design else "",
        "digest": one.digest,
        "reused_positions": sum(row.reused_positions for row in ledger),
        "computed_positions": sum(row.computed_positions for row in ledger),
        "recomputed_positions": sum(row.recomputed_positions for row in ledger),
        "transferred_positions": sum(row.transferred_positions for row in ledger),
        "evictions": kinds["evicted"],
        "ended": dict(Counter(outcome.stop_reason for outcome in record.outcomes)),
        "requests": len(ledger),
        "served": len(served),
        "mean_latency_us": exactly(sum(served, Fraction(0)) / len(served) if served else None),
        "longest_latency_us": exactly(max(served, default=None)),
        "ended_us": exactly(clock.ended_us if clock else None),
        "other_outputs": differ,
    }


def _table(done: list[StoredExecution], arms: list[dict[str, Any]]) -> Table:
    from flashrt.lab.execution import differing
    from flashrt.record import exact

    paths = differing([one.record.specification for one in done])
    partly = any(arm["served"] < arm["requests"] for arm in arms)
    rows = []
    for one, arm in zip(done, arms, strict=True):
        said = {c.control: str(c.setting) for c in one.record.specification.controls}
        counts = [
            str(arm[f"{name}_positions"])
            for name in ("reused", "computed", "recomputed", "transferred")
        ]
        times = [
            "-" if arm[name] is None else us(exact(arm[name]))
            for name in ("mean_latency_us", "longest_latency_us", "ended_us")
        ]
        counts += [f"{arm['served']} of {arm['requests']}"] if partly else []
        outputs = f"differ: {', '.join(arm['other_outputs'])}" if arm["other_outputs"] else "same"
        rows.append(
            (
                arm["arm"], *(said.get(path, "-") for path in paths), *counts,
                str(arm["evictions"]), *times, outputs,
            )
        )  # fmt: skip
    columns = (
        "arm", *(path.partition(".")[2] for path in paths),
        "reused", "computed", "recomputed", "transferred",
        *(("served",) if partly else ()), "evictions",
        "mean latency us", "longest us", "end us", "outputs",
    )  # fmt: skip
    return Table(columns, rows)
