"""Progress on stderr: a bar on a terminal, one line a stage in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from flashrt.report.safe_text import log_line, visible


class Tell(Protocol):
    """What a library function reports its progress with; it never decides how that is shown."""

    def __call__(self, stage: str, done: int = 0, total: int = 0, note: str = "") -> None:
        """``done`` of ``total`` units of ``stage`` are behind us (0: not counted)."""


def silent(stage: str, done: int = 0, total: int = 0, note: str = "") -> None:
    """A :class:`Tell` that shows nothing."""


class _Lines:
    """One line when a stage starts and one when it ends: what a log can bear."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._stage = ""

    def __call__(self, stage: str, done: int = 0, total: int = 0, note: str = "") -> None:
        new = stage != self._stage
        if not new and not (total and done >= total):
            return
        self._stage = stage
        count = f" {done}/{total}" if total else ""
        self._stream.write(log_line(f"{stage}{count}{f': {note}' if note else ''}") + "\n")
        self._stream.flush()


class _Bars:
    """One Rich bar a stage."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._tasks: dict[str, Any] = {}

    def __call__(self, stage: str, done: int = 0, total: int = 0, note: str = "") -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task("", total=total or None)
        text = f"{visible(stage)}{f': {visible(note)}' if note else ''}"
        self._progress.update(
            self._tasks[stage], completed=done, total=total or None, description=text
        )


@contextmanager
def reporting(stream: TextIO | None = None, quiet: bool = False) -> Iterator[Tell]:
    """A :class:`Tell` that writes to stderr for as long as the block runs."""
    out = stream or sys.stderr
    if quiet:
        yield silent
    elif out.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        # Descriptions carry names from files: markup in them must stay text.
        label = TextColumn("{task.description}", markup=False)
        columns = (label, BarColumn(), MofNCompleteColumn(), Elapsed())
        with Progress(*columns, console=Console(file=out), transient=False) as progress:
            yield _Bars(progress)
    else:
        yield _Lines(out)
