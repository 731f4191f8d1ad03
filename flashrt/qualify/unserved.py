"""Why a scheme binds no seam of a host at some number of rows: the forms that there are."""

from __future__ import annotations

from typing import Any

from flashrt.qualify.request import CellRequest
from flashrt_runtime.reason import Because, Reason, Refusal

MOST = 3


def unserved(plan: dict[str, Any], request: CellRequest) -> tuple[Because, ...]:
    """Reasons for a plan without a bound seam, each once, at most three; never empty.

    A scheme says only that the rows are outside its band. The loader names the form and the size,
    so it is asked first, for every structure that the plan refused.
    """
    from flashrt_runtime.impl_loader import select

    seams = {seam["seam"]["id"]: seam["seam"] for seam in plan["seams"]}
    found: dict[tuple[Reason, str], Because] = {}
    for record in plan["refused"]:
        because = Because.from_record(record)
        seam = seams.get(because.subject)
        if seam is not None:
            try:
                select(
                    seam["structure"],
                    plan["scheme"],
                    "cpu",
                    request.rows,
                    seam["variant"],
                    dtype=plan["model_artifact"]["dtype"],
                )
            except Refusal as refusal:
                because = refusal.because()
        found.setdefault((because.reason, because.detail), because)
    nothing = Because(Reason.STRUCTURE, "the scheme binds no seam here", request.label)
    return tuple(found.values())[:MOST] or (nothing,)
