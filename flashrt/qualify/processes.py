"""Fresh processes, one after another: each loads, captures, measures, writes evidence and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from flashrt.document.canonical import read_json
from flashrt.qualify.job import Job
from flashrt_runtime.reason import Reason, Refusal


def run_process(job: Job, say: Callable[[str], None]) -> dict[str, Any]:
    """Run one job in a process of its own and return the evidence it wrote, by cell label.

    Lines of the process that begin with ``@ `` are passed to ``say``. Raises :class:`Refusal`
    (INCOMPLETE) with the process's last lines when it dies; ``KeyboardInterrupt`` ends the process
    first. Nothing that the process started outlives it.
    """
    with tempfile.TemporaryDirectory(prefix="flashrt-") as folder:
        order, out = Path(folder) / "job.json", Path(folder) / "evidence.json"
        order.write_text(json.dumps(job.record(), allow_nan=False), encoding="utf-8")
        command = [sys.executable, "-m", "flashrt.qualify.worker", str(order), str(out)]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env=_environment(job),
        )
        watcher = threading.Thread(target=_end_with, args=(process.pid,), daemon=True)
        watcher.start()
        tail: list[str] = []
        try:
            assert process.stdout is not None
            for line in process.stdout:
                text = line.rstrip()
                tail = [*tail[-19:], text]
                if text.startswith("@ "):
                    say(text[2:])
            watcher.join()
        finally:
            _kill_group(process.pid)
            watcher.join()
            code = process.wait()
        if code != 0 or not out.is_file():
            raise Refusal(
                Reason.INCOMPLETE,
                f"measuring process {job.process} ended with code {code}: " + " | ".join(tail[-6:]),
                subject=f"process {job.process}",
                do="its receipts are recorded as INCOMPLETE; run the command again",
            )
        return read_json(out)


def _end_with(pid: int) -> None:
    """Wait until a process has ended, then end whatever it started and left behind.

    Compilers keep helper processes, which hold the pipe open: without this, a reader of a killed
    process's output would wait for them for ever. The process is not reaped here, so that its id
    cannot be given to another group meanwhile.
    """
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    _kill_group(pid)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _environment(job: Job) -> dict[str, str]:
    """The child's environment: the caller's, with the thread count that the cell states."""
    threads = str(job.budget.threads)
    return {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
