"""What becomes of a command whose output cannot be delivered: its reader left, or the disk is full.

The result itself is not lost: receipts and files are written before anything is printed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO, cast

from flashrt_cli.exit_codes import ExitCode

_DESCRIPTORS = {"stdout": 1, "stderr": 2}  # whatever Python's objects over them are


class Undelivered(Exception):
    """A stream took less than was written to it. No ``OSError``: nobody in between handles it."""

    def __init__(self, name: str, cause: OSError) -> None:
        super().__init__(f"{name} cannot be written: {cause.strerror or cause}")
        self.name = name
        self.closed = isinstance(cause, BrokenPipeError)


class _Watched:
    """A stream whose failing writes are told from every other ``OSError`` of a command."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name, self._stream = name, stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            raise Undelivered(self._name, error) from error

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise Undelivered(self._name, error) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def _stream(name: str) -> Iterator[TextIO]:
    """The stream, watched; one that goes nowhere where it was closed (``>&-``)."""
    stream = getattr(sys, name)
    if stream is not None:
        yield cast(TextIO, _Watched(name, stream))
    else:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            yield nowhere


def _end(error: Undelivered) -> ExitCode:
    # Python flushes once more at exit, and would complain again: what is left goes nowhere.
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _DESCRIPTORS[error.name])
        os.close(nowhere)
    if error.closed:
        return ExitCode.PIPE_CLOSED
    with contextlib.suppress(Undelivered):
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
    return ExitCode.NOT_WRITTEN


def deliver(command: Callable[[], int]) -> int:
    """Run a command; its exit code, or what says that not all of its output was taken."""
    with (
        _stream("stdout") as out,
        _stream("stderr") as err,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code = command()
            sys.stdout.flush()
        except Undelivered as error:
            return _end(error)
        return code
