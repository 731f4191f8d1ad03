"""What a command prints: one record, rendered for a person, a program or a CI."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Annotated, Any, NoReturn, TextIO

import typer

from flashrt.document.problem import Problem
from flashrt.report.table import Table
from flashrt_cli.exit_codes import ExitCode, combine, of_reason
from flashrt_runtime.reason import Because

__all__ = [
    "Case",
    "ExitCode",
    "Format",
    "FormatOption",
    "Outcome",
    "Output",
    "Problem",
    "Table",
    "combine",
    "emit",
    "finish",
    "of_reason",
    "problem_of",
]


class Format(StrEnum):
    """How results are written to stdout."""

    HUMAN = "human"
    JSON = "json"
    GITHUB = "github"
    JUNIT = "junit"
    SARIF = "sarif"


FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format",
        help="How results are written; human by default, github where CI is set.",
        show_default=False,
    ),
]


class Outcome(Enum):
    """What became of one thing that was asked for."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Case:
    """One thing that was asked for (a cell, a file): a test case for JUnit."""

    name: str
    outcome: Outcome
    detail: str = ""
    group: str = ""


@dataclass(frozen=True)
class Output:
    """What a command found. ``problems`` and ``warnings`` are worst first; ``data`` is JSON."""

    title: str
    tables: Sequence[Table] = ()
    lines: Sequence[str] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()
    cases: Sequence[Case] = ()


def problem_of(because: Because, file: str = "", line: int = 1, do: str = "") -> Problem:
    """A reason as a problem; its subject is the path within ``file``."""
    return Problem(file, line, because.subject or "$", because.detail, do, because.reason)


def resolve_format(fmt: Format | None, environ: Mapping[str, str]) -> Format:
    """The format asked for, else GitHub annotations where ``CI`` is set, else human."""
    if fmt is not None:
        return fmt
    in_ci = environ.get("CI", "").lower() not in ("", "0", "false")
    return Format.GITHUB if in_ci else Format.HUMAN


def emit(
    result: Output,
    fmt: Format | None = None,
    *,
    stream: TextIO | None = None,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Write the result to stdout (its warnings, for a person, to stderr)."""
    out = stream or sys.stdout
    env = os.environ if environ is None else environ
    chosen = resolve_format(fmt, env)
    if chosen is Format.HUMAN:
        from flashrt_cli import render_human

        render_human.render(result, out, env)
    elif chosen is Format.JSON:
        from flashrt_cli import render_json

        out.write(render_json.render(result))
    elif chosen is Format.GITHUB:
        from flashrt_cli import render_github

        out.write(render_github.render(result))
        render_github.append_summary(result, env)
    elif chosen is Format.JUNIT:
        from flashrt_cli import render_junit

        out.write(render_junit.render(result))
    else:
        from flashrt_cli import render_sarif

        out.write(render_sarif.render(result))
    out.flush()


def finish(*codes: int) -> NoReturn:
    """End the command with the exit code that these amount to."""
    raise typer.Exit(int(combine(codes)))
