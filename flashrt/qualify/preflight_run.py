"""A preflight with its record stored: what `flashrt qualify --device sm90` does without one."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from flashrt.qualify.environment import environment
from flashrt.qualify.preflight import PreflightReport, preflight
from flashrt.qualify.run import now
from flashrt.receipt.build import build_unmeasured
from flashrt.record import ExecutionBackend, ExperimentExecution, WallClock

if TYPE_CHECKING:
    from flashrt.receipt.store import Store


@dataclass(frozen=True)
class StoredPreflight:
    """What was found, and the digest of the record that says so."""

    report: PreflightReport
    digest: str

    @property
    def sound(self) -> bool:
        """Whether no check failed."""
        return self.report.sound


def run_preflight(device: str, store: Store) -> StoredPreflight:
    """Preflight ``device`` (``sm90``) and store its record, whose state is ``unknown``.

    Raises what :func:`flashrt.qualify.preflight.preflight` raises, and STORAGE.
    """
    started = now()
    report = preflight(device)
    body = build_unmeasured(
        kind="preflight",
        cell=None,
        request={"device": device},
        execution=_execution(device, started),
        reasons=list(report.reasons),
        environment=environment(len(os.sched_getaffinity(0))),
        checks=[dict(check) for check in report.checks],
    )
    return StoredPreflight(report, store.put("preflight", body))


def _execution(device: str, started: str) -> dict[str, Any]:
    backend = ExecutionBackend(
        compute_device="none",
        device_state_storage="none",
        host_state_storage="host memory",
        library=f"triton {metadata.version('triton')}",
        precision="none",
    )
    return ExperimentExecution(
        id=secrets.token_hex(8),
        tool_version=metadata.version("flashrt"),
        command=("flashrt", "qualify", "--device", device),
        backend=backend,
        processes=0,
        wall=WallClock(started, now()),
    ).record()
