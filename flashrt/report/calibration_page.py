"""A calibration as one self-contained HTML page: figures, verdicts, and every point in a table."""

from __future__ import annotations

from flashrt.report import calibration_figures as figures
from flashrt.report import page, safe_text, svg, table
from flashrt.report.calibration_view import CalibrationView
from flashrt.report.table import Table

_COLUMNS = (
    "point", "verdict", "amax", "÷ median of all", "smallest frame", "median frame",
    "largest frame", "dispersion", "clipped frames", "largest ÷ amax", "frames", "calls",
)  # fmt: skip


def _cell(value: float | None, form: str = ".6g") -> str:
    return "–" if value is None else format(value, form)


def points_table(view: CalibrationView) -> Table:
    """Every point: those without a scale first, then by dispersion, the widest first."""
    bare = [p for p in view.points if p.dispersion is None]
    rows = []
    for point in (*bare, *view.widest()):
        ratio = point.amax / view.median if point.amax is not None and view.median else None
        shares = (_cell(ratio, ".3f"), _cell(point.minimum), _cell(point.median))
        rest = (_cell(point.maximum), _cell(point.dispersion, ".3f"), str(point.clipped))
        last = (_cell(point.overshoot, ".4f"), str(point.seen), str(point.calls))
        rows.append((point.name, point.verdict, _cell(point.amax), *shares, *rest, *last))
    return Table(_COLUMNS, rows, "every point; values are amax, in the activation's own unit")


def clipping(view: CalibrationView) -> str:
    """What the percentile clips, in one sentence."""
    found = view.clipping()
    if not found:
        return "Nothing is clipped: every point's scale reaches its largest frame."
    worst = found[0]
    return (
        f"{len(found)} of {len(view.points)} points clip some frame at percentile "
        f"{view.percentile}; furthest {worst.name}: {figures.clipped(worst)}."
    )


def legend(view: CalibrationView) -> str:
    """The verdicts that occur, each with its mark, its colour and its count."""
    items = [
        f'<span><svg width="12" height="12" viewBox="-6 -6 12 12" aria-hidden="true">'
        f"{svg.mark(verdict, (0, 0))}</svg> {safe_text.html(verdict)}: <b>{count}</b></span>"
        for verdict, count in view.verdicts.items()
    ]
    return f'<p class="legend">{"".join(items)}</p>'


def _figure(title: str, words: str, drawn: str) -> str:
    return (
        f"<figure><h2>{safe_text.html(title)}</h2>\n<figcaption>{safe_text.html(words)}"
        f'</figcaption>\n<div class="wide">{drawn}</div></figure>'
    )


def calibration_html(view: CalibrationView) -> str:
    """The page. It fetches nothing, runs nothing, and names every value it draws."""
    shown, every = len(figures.detailed(view)), len(view.widest())
    warned = "".join(f"<li>{safe_text.html(text)}</li>" for text in view.warnings)
    body = [
        f"<style>{figures.STYLE}</style>",
        f"<p>{safe_text.html(view.summary)}.</p>",
        legend(view),
        f"<p>{safe_text.html(clipping(view))}</p>",
        f"<details open><summary>{len(view.warnings)} warnings</summary><ul>{warned}</ul></details>"
        if view.warnings
        else "<p>No warnings.</p>",
        _figure(
            "Scales against the ceiling",
            "Mark: the amax that a scale is made of. Bar: smallest to largest frame. A point above "
            "the ceiling is an outlier: one scale for the whole tensor leaves the rest few steps.",
            figures.amax(view),
        ),
        _figure(
            "Dispersion",
            "How much a point differs between frames, sorted. Near 1, any frame gives the same "
            "scale; far above, the scale depends on which frames were drawn. Red: above the scale.",
            figures.dispersion(view),
        ),
        _figure(
            f"Frame by frame: {shown} of {every} points",
            "Thin ticks: frames. Thick tick: the scale. Red: frames that it clips. Right: verdict, "
            "dispersion, what is clipped.",
            figures.frames(view),
        ),
        f'<h2>All points</h2>\n<div class="wide">{table.html(points_table(view))}</div>',
        table.html(Table(("fact", "value"), view.facts, "what this calibration is of")),
    ]
    return page.document("flashrt: calibration", body)
