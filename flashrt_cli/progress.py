"""Progress on stderr: bars with the time left on a terminal, lines or one summary in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass
class _Stage:
    """What is known of a stage: counts, when it began, when it was last heard of or left."""

    began: float
    ended: float
    done: int = 0
    total: int = 0


class _Summary:
    """One line when all is over: every stage with its count and its time."""

    def __init__(self, stream: TextIO, now: Callable[[], float]) -> None:
        self._stream, self._now = stream, now
        self._stages: dict[str, _Stage] = {}
        self._last = ""

    def __call__(self, stage: str, done: int = 0, total: int = 0, note: str = "") -> None:
        now = self._now()
        if self._last in self._stages:
            self._stages[self._last].ended = now
        known = self._stages.setdefault(stage, _Stage(now, now))
        known.done, known.total, known.ended, self._last = done, total, now, stage

    def close(self, finished: bool) -> None:
        """Write the line; the last stage is said to have stopped unless the run finished."""
        if not self._stages:
            return
        self._stages[self._last].ended = self._now()
        parts = []
        for name, stage in self._stages.items():
            count = f" {stage.done}/{stage.total}" if stage.total else ""
            parts.append(f"{name}{count} {stage.ended - stage.began:.1f} s")
        stopped = "" if finished else " (stopped)"
        self._stream.write(log_line(", ".join(parts) + stopped) + "\n")
        self._stream.flush()


class _Bars:
    """One Rich bar a stage. A stage that is not counted is done when the next one begins."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._tasks: dict[str, Any] = {}

    def __call__(self, stage: str, done: int = 0, total: int = 0, note: str = "") -> None:
        if stage not in self._tasks:
            for task in self._progress.tasks:
                if task.total is None:
                    self._progress.update(task.id, total=1, completed=1)
            self._tasks[stage] = self._progress.add_task("", total=total or None)
        text = f"{visible(stage)}{f': {visible(note)}' if note else ''}"
        self._progress.update(
            self._tasks[stage], completed=done, total=total or None, description=text
        )


@contextmanager
def reporting(
    stream: TextIO | None = None,
    quiet: bool = False,
    *,
    summary: bool = False,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[Tell]:
    """A :class:`Tell` that writes to stderr for as long as the block runs.

    A terminal gets a bar a stage, with the time left of those that are counted. A pipe gets a line
    when a stage starts and one when it ends; with ``summary``, one line for all of them at the end,
    also when the block raises. ``now`` gives seconds.
    """
    out = stream or sys.stderr
    if quiet:
        yield silent
    elif out.isatty():
        with _bars(out) as progress:
            yield _Bars(progress)
    elif summary:
        told = _Summary(out, now)
        finished = False
        try:
            yield told
            finished = True
        finally:
            told.close(finished)
    else:
        yield _Lines(out)


def _bars(out: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed
    from rich.progress import TimeRemainingColumn as Remaining

    # Descriptions carry names from files: markup in them must stay text.
    label = TextColumn("{task.description}", markup=False)
    columns = (label, BarColumn(), MofNCompleteColumn(), Elapsed(), TextColumn("ETA"), Remaining())
    # One frame of a large host may take minutes: the speed is that of the last hour, not of the
    # last half minute, within which there may be no frame to make an estimate of.
    return Progress(
        *columns, console=Console(file=out), transient=False, speed_estimate_period=3600.0
    )
