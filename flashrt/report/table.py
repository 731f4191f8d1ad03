"""A table of text, and its rendering as aligned plain text, Markdown and HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from flashrt.report import safe_text

_NUMBER = re.compile(r"^[<≥≤~]?[-+]?[0-9][0-9_,.]*(?:e[-+]?[0-9]+)?\s*(?:[x×%]|ns|us|µs|ms|s|B)?$")


@dataclass(frozen=True)
class Table:
    """Columns and rows of text. Every row has one cell per column."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells in a table of {len(self.columns)}")

    def numeric(self, column: int) -> bool:
        """Whether every filled cell of the column is a number, so that it is aligned right."""
        cells = [row[column] for row in self.rows if row[column] not in ("", "-", "–")]
        return bool(cells) and all(_NUMBER.match(cell) for cell in cells)


def _pad(text: str, to: int, right: bool) -> str:
    space = " " * (to - safe_text.width(text))
    return space + text if right else text + space


def plain(table: Table) -> list[str]:
    """Lines of aligned text, safe in a log. A table without rows says so."""
    grid = [[safe_text.visible(c) for c in row] for row in [table.columns, *table.rows]]
    right = [table.numeric(i) for i in range(len(table.columns))]
    widths = [max(safe_text.width(row[i]) for row in grid) for i in range(len(table.columns))]
    lines = [safe_text.log_line(table.title)] if table.title else []
    for row in grid:
        cells = [_pad(c, w, r) for c, w, r in zip(row, widths, right, strict=True)]
        lines.append(safe_text.log_line("  ".join(cells).rstrip()))
    lines.insert(len(lines) - len(table.rows), "  ".join("-" * w for w in widths))
    return lines if table.rows else [*lines, "(none)"]


def markdown(table: Table) -> str:
    """A GitHub-flavoured Markdown table."""
    cells = [[safe_text.markdown(c) for c in row] for row in [table.columns, *table.rows]]
    rule = ["---:" if table.numeric(i) else "---" for i in range(len(table.columns))]
    head = f"**{safe_text.markdown(table.title)}**\n\n" if table.title else ""
    return head + "\n".join(f"| {' | '.join(r)} |" for r in [cells[0], rule, *cells[1:]]) + "\n"


def html(table: Table) -> str:
    """An HTML ``<table>`` with a caption."""
    caption = f"<caption>{safe_text.html(table.title)}</caption>" if table.title else ""
    right = [' class="n"' if table.numeric(i) else "" for i in range(len(table.columns))]
    head = "".join(f'<th scope="col">{safe_text.html(c)}</th>' for c in table.columns)
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{r}>{safe_text.html(c)}</td>" for c, r in zip(row, right, strict=True))
        + "</tr>"
        for row in table.rows
    )
    return f"<table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"
