"""Ledger records: what ran, how often, what fell back and why."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    from flashrt_runtime.adapters.accounts import AdapterReport
    from flashrt_runtime.capture import Stage
    from flashrt_runtime.handle import SeamReport

SCHEMA = "flashrt.ledger/1"


@dataclass(frozen=True)
class RunLine:
    """What the run as a whole was. ``state`` is the activated route's, ``host`` when none fitted,
    ``unknown`` for an attachment that no release vouches for."""

    release: str | None = None
    policy: str = "host"
    state: str = "unknown"
    reasons: tuple[Because, ...] = ()

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "schema": SCHEMA,
            "kind": "run",
            "release": self.release,
            "policy": self.policy,
            "state": self.state,
            "reasons": [because.record() for because in self.reasons],
        }


def _seam_line(report: SeamReport) -> dict[str, Any]:
    chain: dict[str, Any] = {} if report.chain is None else {"chain": report.chain}
    if chain and report.restored:
        chain["restored"] = True
    return {
        "schema": SCHEMA,
        "kind": "seam",
        "seam": report.seam,
        "structure": report.structure,
        "backend": report.backend,
        "form": report.form,
        "calls": report.calls,
        "dispatched": report.dispatched,
        "fallbacks": report.fallbacks,
        "replayed": report.replayed,
        "last_reason": report.last_reason,
        **chain,
    }


def _adapter_line(report: AdapterReport) -> dict[str, Any]:
    return {"schema": SCHEMA, "kind": "adapter", **report.record()}


def _stage_line(stage: Stage) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": "stage",
        "stage": stage.name,
        "form": list(stage.form),
        "replays": stage.replays,
        "operators": dict(stage.operators),
    }


def lines(
    run: RunLine,
    reports: Iterable[SeamReport],
    stages: Iterable[Stage],
    adapters: Iterable[AdapterReport] = (),
) -> list[dict[str, Any]]:
    """The run's record first, then the seams', the adapters' and the stages'."""
    return [
        run.record(),
        *map(_seam_line, reports),
        *map(_adapter_line, adapters),
        *map(_stage_line, stages),
    ]


def export(records: Iterable[dict[str, Any]], path: Path) -> None:
    """Write one JSON object a line; a reader sees the old file or the new one.

    Raises :class:`Refusal` (STORAGE) when the file cannot be written.
    """
    text = "".join(
        json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"
        for record in records
    )
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "x", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except OSError as error:
        what = f"cannot write the ledger: {error.strerror or error}"
        raise Refusal(Reason.STORAGE, what, subject=str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
