"""A route: what the runtime binds for one cell, copied from the plan that the receipt names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flashrt.document.canonical import canonical_bytes
from flashrt.release.source import Body, short
from flashrt.release.state import State
from flashrt_runtime.chain_route import members_record
from flashrt_runtime.reason import Reason, Refusal


def _disagreement(receipt: Body, plan: Body) -> str | None:
    """The first fact on which the receipt's cell and its plan differ."""
    cell = receipt["cell"]
    pairs = (
        ("plan", receipt["plan"], plan["digest"]),
        ("scheme", cell["precision"]["scheme"], plan["scheme"]),
        ("binding", cell["binding"]["digest"], plan["binding"]["digest"]),
        ("calibration", cell["calibration"], plan["calibration"]),
        ("overrides", cell["precision"].get("overrides"), plan.get("overrides")),
        ("chains", cell["precision"].get("chains", []), members_record(plan.get("chains", []))),
        (
            "checkpoint",
            cell["model_artifact"]["checkpoint_digest"],
            plan["model_artifact"]["checkpoint_digest"],
        ),
    )
    for name, ours, theirs in pairs:
        if ours != theirs:
            return f"{name}: the cell has {ours}, the plan has {theirs}"
    return None


def _bound(plan: Body, rows: list[int]) -> list[dict[str, Any]]:
    return [
        {
            "seam": seam["seam"],
            "impl": {k: seam["impl"][k] for k in ("structure", "backend", "form")},
            "scales": dict(seam["scales"]),
            "rows": rows,
        }
        for seam in plan["seams"]
        if seam["outcome"] == "bind"
    ]


def route_of(receipt: Body, plan: Body) -> dict[str, Any]:
    """The route of a receipt, with rank 0 (see :func:`ranked`).

    Raises :class:`Refusal` (CONFLICT) when receipt and plan are not of one measurement, or when
    the seams that the evidence proves are not the ones that the plan binds.
    """
    subject = f"receipt {short(receipt['digest'])}"
    differs = _disagreement(receipt, plan)
    if differs:
        raise Refusal(Reason.CONFLICT, differs, subject=subject, do="qualify the cell again")
    shape = receipt["cell"]["shape"]
    rows = shape["batch"] * shape["rows"]
    seams = _bound(plan, [rows, rows])
    planned = {seam["seam"]["id"] for seam in seams}
    for proof in receipt["evidence"]["path"]:
        if set(proof["expected"]) != planned:
            odd = sorted(set(proof["expected"]) ^ planned)[0]
            raise Refusal(
                Reason.CONFLICT,
                f"seam {odd} is in the plan or in the path evidence, not in both",
                subject=subject,
                do="qualify the cell again",
            )
    if not seams:
        raise Refusal(Reason.CONFLICT, "the plan binds no seam", subject=subject)
    for chain in plan.get("chains", []):
        lost = sorted({chain["producer"], *chain["readers"]} - planned)
        if lost:
            what = f"the chain of {chain['producer']} lost {lost[0]}, which the plan does not bind"
            raise Refusal(Reason.CONFLICT, what, subject=subject, do="qualify the cell again")
    speedup = receipt["verdict"]["statistics"]["speedup"]
    return {
        "cell": receipt["cell"],
        "cell_digest": receipt["cell_digest"],
        "receipt": receipt["digest"],
        "state": receipt["verdict"]["state"],
        "band": receipt["verdict"]["band"],
        "headline": {k: speedup[k] for k in ("median", "low", "high")} if speedup else None,
        "rank": 0,
        "binding_manifest": plan["binding_manifest"],
        "seams": seams,
        **({"chains": plan["chains"]} if plan.get("chains") else {}),
        "calibration": receipt["cell"]["calibration"],
    }


def _facts(cell: Body) -> bytes:
    """What a host brings along, whichever treated arm serves it."""
    return canonical_bytes(
        {
            "checkpoint": cell["model_artifact"]["checkpoint_digest"],
            "device": cell["device"],
            "shape": cell["shape"],
        }
    )


def _best_first(route: Body) -> tuple[int, float, str]:
    low = route["headline"]["low"] if route["headline"] else 0.0
    return (-State(route["state"]).order, -low, route["cell_digest"])


def ranked(routes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Routes with their rank among those that fit the same facts: certified before supported, then
    by the lower bound of the speed-up. Sorted by rank, then by cell digest."""
    groups: dict[bytes, list[dict[str, Any]]] = {}
    for route in routes:
        groups.setdefault(_facts(route["cell"]), []).append(route)
    out = [
        {**route, "rank": rank}
        for group in groups.values()
        for rank, route in enumerate(sorted(group, key=_best_first))
    ]
    return sorted(out, key=lambda r: (r["rank"], r["cell_digest"]))
