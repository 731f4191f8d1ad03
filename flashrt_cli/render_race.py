"""What one race showed, for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashrt_cli.output import Output, Table

if TYPE_CHECKING:
    from flashrt.qualify.request import CellRequest
    from flashrt.qualify.solo import Seen
    from flashrt.race.decision import Interval


def _row(name: str, seen: Interval | None) -> list[str]:
    if seen is None:
        return [name, "–", "–"]
    return [name, f"{seen.median:.4f}x", f"{seen.low:.4f} to {seen.high:.4f}"]


def render(request: CellRequest, seen: Seen) -> Output:
    """A table of both races and what follows from them."""
    rows = [_row("host / treated", seen.race), _row("host / host (null)", seen.null)]
    lines = [
        f"{seen.decision.value} after {seen.pairs} pairs; most foreign load {seen.foreign:.0%}",
        "one process, no parity, no receipt: `flashrt qualify` is what earns a state",
    ]
    return Output(
        title=f"race {request.label}",
        tables=[Table(("times", "ratio", "interval"), rows)],
        lines=[*lines, *(str(because) for because in seen.reasons)],
        data={
            "cell": request.text,
            "decision": seen.decision.value,
            "race": seen.race.record() if seen.race else None,
            "null": seen.null.record() if seen.null else None,
            "pairs": seen.pairs,
            "setup_s": dict(seen.setup_s),
            "reasons": [because.record() for because in seen.reasons],
        },
    )
