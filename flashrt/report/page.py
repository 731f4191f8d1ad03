"""Pages from receipts: the matrix as Markdown, and a self-contained HTML page without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashrt.report import safe_text, table

if TYPE_CHECKING:
    from flashrt.release.matrix import Matrix, Row

_STYLE = """
:root { color-scheme: light dark; --edge: #8886; --note: #888; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0 2rem; }
caption { caption-side: bottom; color: var(--note); text-align: left; padding-top: .4rem; }
th, td { border-bottom: 1px solid var(--edge); padding: .35rem .8rem; text-align: left;
  vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { max-width: 100%; height: auto; }
.axis { stroke: var(--edge); } .mark { stroke: currentColor; stroke-width: 2; }
text { fill: currentColor; font: 12px system-ui, sans-serif; }
""".strip()

_ROW, _LEFT, _WIDTH = 26, 400, 900


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


def intervals(rows: Sequence[Row]) -> str:
    """An SVG of each raced cell's interval, with a line at 1 (as fast as the host)."""
    raced = [(row, row.ratio) for row in rows if row.ratio is not None]
    if not raced:
        return ""
    low = min(1.0, *(ratio[1] for _, ratio in raced)) * 0.98
    high = max(1.0, *(ratio[2] for _, ratio in raced)) * 1.02

    def x(value: float) -> float:
        return round(_LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - 20), 2)

    height = _ROW * (len(raced) + 1)
    marks = [
        f'<line class="axis" x1="{x(1.0)}" x2="{x(1.0)}" y1="0" y2="{height - _ROW}"/>',
        f'<text x="{x(1.0)}" y="{height - 6}" text-anchor="middle">1.000</text>',
    ]
    for index, (row, (median, start, end)) in enumerate(raced):
        y = _ROW * index + _ROW / 2
        spoken = f"{row.label}: {median:.3f}, {start:.3f} to {end:.3f}"
        marks.append(
            f"<g><title>{safe_text.html(spoken)}</title>"
            f'<text x="{_LEFT - 12}" y="{y + 4}" text-anchor="end">'
            f"{safe_text.html(row.label)}</text>"
            f'<line class="mark" x1="{x(start)}" x2="{x(end)}" y1="{y}" y2="{y}"/>'
            f'<circle cx="{x(median)}" cy="{y}" r="4" fill="currentColor"/></g>'
        )
    return (
        f'<svg role="img" aria-label="Speed-up of each cell with its interval" '
        f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}">' + "".join(marks) + "</svg>"
    )


def matrix_markdown(matrix: Matrix) -> str:
    """The matrix as a Markdown table with its promise."""
    return f"{table.markdown(matrix.table())}\n{safe_text.markdown(matrix.promise())}\n"


def matrix_html(matrix: Matrix, title: str = "flashrt: cells") -> str:
    """The matrix as a page: intervals, the table, and what is expected in false promotions."""
    promise = f"<p>{safe_text.html(matrix.promise())}</p>"
    return document(title, [promise, intervals(matrix.rows), table.html(matrix.table())])
