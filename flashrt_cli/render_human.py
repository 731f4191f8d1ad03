"""A result for a person: Rich on a terminal, aligned plain text in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from flashrt.report import safe_text, table
from flashrt_runtime.reason import Reason

if TYPE_CHECKING:
    from flashrt.document.problem import Problem
    from flashrt_cli.output import Output


_SHORT = 18


def say(problem: Problem) -> str:
    """``file:line: $.path: what; what to do [FRT… NAME]``, without the parts that are not known."""
    where = f"{problem.file}:{problem.line}: {problem.path}: " if problem.file else ""
    if not problem.file and problem.path not in ("", "$"):
        where = f"{problem.path}: "
    advice = f"; {problem.do}" if problem.do else ""
    code = (
        "" if problem.reason is Reason.SCHEMA else f" [{problem.reason.code} {problem.reason.name}]"
    )
    return f"{where}{problem.what}{advice}{code}"


def plain(result: Output) -> str:
    """Plain text with aligned tables, one problem a line, safe in any log."""
    blocks = [[safe_text.log_line(result.title)]] if result.title else []
    blocks += [table.plain(t) for t in result.tables]
    if result.lines:
        blocks.append(
            [safe_text.log_line(line) for text in result.lines for line in text.split("\n")]
        )
    if result.problems:
        blocks.append([safe_text.log_line(say(p)) for p in result.problems])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n" if blocks else ""


def _rich(result: Output, stream: TextIO) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=False)
    if result.title:
        console.print(Text(safe_text.visible(result.title), style="bold"))
    for item in result.tables:
        caption = Text(safe_text.visible(item.title)) if item.title else None
        drawn = RichTable(title=caption, box=SIMPLE_HEAD, title_justify="left")
        for index, column in enumerate(item.columns):
            drawn.add_column(
                Text(safe_text.visible(column)),
                justify="right" if item.numeric(index) else "left",
                overflow="fold",
                # What is short is an identifier or a number: only prose is folded.
                no_wrap=all(len(row[index]) <= _SHORT for row in item.rows),
            )
        for row in item.rows:
            drawn.add_row(*[Text(safe_text.visible(cell)) for cell in row])
        console.print(drawn)
    for line in [part for text in result.lines for part in text.split("\n")]:
        console.print(Text(safe_text.visible(line)))
    for problem in result.problems:
        console.print(Text(safe_text.visible(say(problem)), style="red"))


def render(result: Output, stream: TextIO, environ: Mapping[str, str]) -> None:
    """Write to ``stream``; warnings go to stderr."""
    if stream.isatty() and environ.get("TERM") != "dumb":
        _rich(result, stream)
    else:
        stream.write(plain(result))
    stream.flush()
    for warning in result.warnings:
        sys.stderr.write(safe_text.log_line(f"warning: {say(warning)}") + "\n")
