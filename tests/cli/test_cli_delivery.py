"""Output that cannot be delivered: a full disk, a reader that left, a stream that was closed."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys

import pytest

from flashrt_cli import main
from flashrt_cli.delivery import Undelivered, deliver
from flashrt_cli.exit_codes import ExitCode

COMMAND = (sys.executable, "-c", "from flashrt_cli.main import main; main()")
PRINTING = [
    ["--version"], ["--help"], ["schema", "structure"], ["explain", "FRT019"],
    ["explain", "FRT019", "--format", "json"], ["verify", "nothing-here", "--format", "json"],
    ["verify", "nothing-here", "--format", "github"],
]  # fmt: skip


class Failing(io.StringIO):
    """A stream whose disk is full, or whose reader left."""

    def __init__(self, number: int, only_flush: bool = False) -> None:
        super().__init__()
        self.number, self.only_flush = number, only_flush

    def write(self, text: str) -> int:
        if self.only_flush:
            return super().write(text)
        raise OSError(self.number, os.strerror(self.number))

    def flush(self) -> None:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("args", PRINTING, ids=" ".join)
def test_a_full_disk_has_its_own_status_and_is_no_bug(args: list[str], unbuffered: str) -> None:
    environ = {k: v for k, v in os.environ.items() if k != "CI"}
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [*COMMAND, *args], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env=environ | {"PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert done.returncode == ExitCode.NOT_WRITTEN
    assert done.stderr.endswith(f"stdout cannot be written: {os.strerror(errno.ENOSPC)}\n")
    assert "bug" not in done.stderr


def test_a_reader_that_left_is_quiet_and_fails_no_gate() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "schema", "structure"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert done.returncode == ExitCode.PIPE_CLOSED
    assert done.stderr == b""


def test_a_full_stderr_too_still_ends_with_its_status() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [*COMMAND, "schema", "structure"], stdout=full, stderr=full, check=False
        )
    assert done.returncode == ExitCode.NOT_WRITTEN


@pytest.mark.parametrize(("args", "code"), [(["explain", "FRT019"], 0), (["nonsense"], 2)])
def test_closed_streams_leave_the_status(
    monkeypatch: pytest.MonkeyPatch, args: list[str], code: int
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert main.run(args) == code


@pytest.mark.parametrize(
    ("number", "name", "code"),
    [
        (errno.ENOSPC, "stdout", ExitCode.NOT_WRITTEN),
        (errno.ENOSPC, "stderr", ExitCode.NOT_WRITTEN),
        (errno.EPIPE, "stdout", ExitCode.PIPE_CLOSED),
        (errno.EPIPE, "stderr", ExitCode.PIPE_CLOSED),
    ],
)
def test_a_failing_write_is_told_from_the_commands_own_errors(
    monkeypatch: pytest.MonkeyPatch, number: int, name: str, code: int
) -> None:
    moved: list[int] = []
    monkeypatch.setattr(os, "dup2", lambda _, target: moved.append(target))
    monkeypatch.setattr(sys, name, Failing(number))

    def command() -> int:
        getattr(sys, name).write("a result")
        raise AssertionError("the failed write was not seen")

    assert deliver(command) == code
    assert moved == [{"stdout": 1, "stderr": 2}[name]]


def test_what_only_the_last_flush_finds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    monkeypatch.setattr(sys, "stdout", Failing(errno.ENOSPC, only_flush=True))
    assert deliver(lambda: sys.stdout.write("x") and 0) == ExitCode.NOT_WRITTEN


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), BrokenPipeError()])
def test_an_error_of_the_command_itself_passes(error: OSError) -> None:
    def command() -> int:
        raise error

    with pytest.raises(type(error)):
        deliver(command)
    assert not isinstance(error, Undelivered)
