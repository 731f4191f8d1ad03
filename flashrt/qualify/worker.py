"""A fresh measuring process: ``python -m flashrt.qualify.worker JOB EVIDENCE``.

It is told what to measure as JSON, measures each group of cells that share a captured step, and
writes evidence as JSON. It judges nothing. Lines that begin with ``@ `` are progress.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from pathlib import Path
from typing import Any

from flashrt.document.canonical import read_json
from flashrt.qualify.job import Job
from flashrt.qualify.request import CellRequest

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def say(text: str) -> None:
    """One line of progress to the parent."""
    print(f"@ {text}", flush=True)


def measure(job: Job) -> dict[str, Any]:
    """Evidence fragments of one process, by cell label."""
    import torch

    from flashrt.host import load_host
    from flashrt.qualify.group import measure_group

    torch.set_num_threads(job.budget.threads)
    torch.manual_seed(job.seed)
    host = load_host(job.host)
    groups: dict[tuple[str, int, int, str], list[CellRequest]] = {}
    for cell in job.cells:
        groups.setdefault((cell.phase, cell.rows, cell.context, cell.form), []).append(cell)
    evidence: dict[str, Any] = {}
    for index, cells in enumerate(groups.values(), start=1):
        evidence |= measure_group(job, host, cells, say, (index, len(groups)))
    return evidence


def _end_with_parent() -> None:
    """Ask the kernel to end this process when its parent ends: nobody would read its evidence."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Read the job, measure, write the evidence file; exit 0 when it is whole."""
    _end_with_parent()
    order, out = Path(arguments[0]), Path(arguments[1])
    evidence = measure(Job.from_record(read_json(order)))
    out.write_text(json.dumps(evidence, allow_nan=False), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
