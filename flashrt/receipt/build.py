"""Receipts, sealed: the verdict is computed here and nowhere handed in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flashrt.document.canonical import canonical_bytes, seal, sha256
from flashrt.document.schema import require
from flashrt.gate.judge import UNKNOWN, judge
from flashrt.gate.thresholds import Thresholds
from flashrt_runtime.reason import Because, Reason, Refusal

SCHEMA = "flashrt.receipt/1"


def cell_digest(cell: Mapping[str, Any]) -> str:
    """The claim's identity: sha256 of the cell's canonical bytes."""
    return sha256(canonical_bytes(dict(cell)))


def attempt_record(body: Mapping[str, Any]) -> dict[str, Any]:
    """How a later receipt lists this one among the earlier attempts at its cell."""
    return {
        "digest": body["digest"],
        "state": body["verdict"]["state"],
        "ended_at": body["execution"]["ended_at"],
    }


def _sealed(body: dict[str, Any], name: str, file: str) -> dict[str, Any]:
    try:
        sealed = seal(body)
    except ValueError as error:
        raise Refusal(Reason.SCHEMA, str(error), subject=file) from error
    require(sealed, name, file=file)
    return sealed


def build_receipt(
    *,
    cell: Mapping[str, Any],
    plan: str | None,
    execution: Mapping[str, Any],
    model_artifact: Mapping[str, Any],
    workload: Mapping[str, Any],
    evidence: Mapping[str, Any],
    thresholds: Thresholds,
    attempts: Sequence[Mapping[str, Any]] = (),
    supersedes: str | None = None,
    revokes: Sequence[str] = (),
) -> dict[str, Any]:
    """A sealed qualification receipt; its verdict is ``judge(evidence, thresholds)``.

    ``plan`` is a digest; ``attempts`` are :func:`attempt_record` of every earlier attempt at the
    cell (``Store.attempts``), and ``thresholds.attempt`` is one more than their number.
    Raises :class:`Refusal` (THRESHOLD) when it is not, (UNCAPTURABLE) for a cell without a captured
    form, (SCHEMA) when a value is not JSON (NaN included), and
    :class:`~flashrt.document.problem.InputError` with every violation of the schema.
    """
    if not cell.get("form") or "eager" in cell["form"]:
        raise Refusal(
            Reason.UNCAPTURABLE,
            "an eager step is never the basis of a receipt",
            subject=str(list(cell.get("form", []))),
            do="capture both arms in the form the deployment uses",
        )
    if thresholds.attempt != len(attempts) + 1:
        raise Refusal(
            Reason.THRESHOLD,
            f"attempt {thresholds.attempt} follows {len(attempts)} earlier ones",
            subject="thresholds.attempt",
            do="declare thresholds from the store's attempts before racing",
        )
    gates = thresholds.record()
    return _sealed(
        {
            "schema": SCHEMA,
            "kind": "qualification",
            "cell_digest": cell_digest(cell),
            "cell": dict(cell),
            "plan": plan,
            "execution": dict(execution),
            "model_artifact": dict(model_artifact),
            "workload": dict(workload),
            "evidence": dict(evidence),
            "thresholds": gates,
            "verdict": judge(evidence, gates),
            "attempts": [dict(a) for a in attempts],
            "supersedes": supersedes,
            "revokes": list(revokes),
        },
        "qualification_receipt",
        "receipt",
    )


def build_unmeasured(
    *,
    kind: str,
    cell: Mapping[str, Any] | None,
    request: Mapping[str, str],
    execution: Mapping[str, Any],
    reasons: Sequence[Because],
    environment: Mapping[str, Any],
    checks: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """A sealed record of kind ``preflight`` or ``incomplete``; its state is always ``unknown``.

    ``checks`` are ``{"name", "subject", "outcome": passed|failed|not_done, "detail"}``. Raises
    :class:`~flashrt.document.problem.InputError` on violations of the schema, no reason included.
    """
    return _sealed(
        {
            "schema": SCHEMA,
            "kind": kind,
            "cell_digest": None if cell is None else cell_digest(cell),
            "cell": None if cell is None else dict(cell),
            "request": dict(request),
            "execution": dict(execution),
            "verdict": {
                "state": UNKNOWN,
                "band": "none",
                "reasons": [because.record() for because in reasons],
            },
            "checks": [dict(check) for check in checks],
            "environment": dict(environment),
        },
        "preflight_record",
        f"{kind} record",
    )
