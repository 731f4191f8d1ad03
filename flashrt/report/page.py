"""Pages from receipts: the matrix as Markdown, and a self-contained HTML page without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashrt.race.decision import Interval
from flashrt.report import safe_text, table
from flashrt.report.forest import STYLE, Bar, forest

if TYPE_CHECKING:
    from flashrt.release.matrix import Matrix, Row

_STYLE = """
:root { color-scheme: light dark; --edge: #8886; --note: #888; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; }
h1, p, li { overflow-wrap: anywhere; }
table { border-collapse: collapse; margin: 1rem 0 2rem; }
caption { caption-side: bottom; color: var(--note); text-align: left; padding-top: .4rem; }
th, td { border-bottom: 1px solid var(--edge); padding: .35rem .8rem; text-align: left;
  vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { max-width: 100%; height: auto; }
.axis { stroke: var(--edge); } .mark { stroke: currentColor; stroke-width: 2; }
text { fill: currentColor; font: 12px system-ui, sans-serif; }
""".strip()

_NAMES = 420.0  # pixels for the cells' names


def document(title: str, body: Sequence[str]) -> str:
    """A whole HTML document: styles inline, nothing fetched, nothing run."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{safe_text.html(title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n"
        f"<h1>{safe_text.html(title)}</h1>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


_KINDS = {"certified_fast": "good", "supported_correct": "host", "unknown": "lost"}


def intervals(rows: Sequence[Row]) -> str:
    """An SVG of each raced cell's interval, with lines at 1 (the host) and at their margin."""
    bars = [
        Bar(row.label, Interval(low, median, high), row.state.value, _KINDS[row.state.value])
        for row in rows
        if row.ratio is not None
        for median, low, high in (row.ratio,)
    ]
    margins = sorted({row.margin for row in rows if row.ratio is not None and row.margin})
    # Several margins have no line: each cell's state says on which side of its own it is.
    lines = [(1.0, "host", "one"), *((m, "margin", "limit") for m in margins if len(margins) == 1)]
    return forest(bars, lines, "Speed-up of each cell with its interval", left=_NAMES)


def matrix_markdown(matrix: Matrix) -> str:
    """The matrix as a Markdown table with its promise."""
    return f"{table.markdown(matrix.table())}\n{safe_text.markdown(matrix.promise())}\n"


def matrix_html(matrix: Matrix, title: str = "flashrt: cells") -> str:
    """The matrix as a page: intervals, the table, and what is expected in false promotions."""
    promise = f"<p>{safe_text.html(matrix.promise())}</p>"
    drawn = f'<style>{STYLE}</style>\n<div class="wide">{intervals(matrix.rows)}</div>'
    wide = f'<div class="wide">{table.html(matrix.table())}</div>'
    return document(title, [promise, drawn, wide])
