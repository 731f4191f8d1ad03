"""A calibration's figures as a PNG, for places that show no HTML. Needs matplotlib."""

from __future__ import annotations

import io
from typing import Any

from flashrt.report.calibration_figures import detailed, shorten
from flashrt.report.calibration_page import clipping
from flashrt.report.calibration_view import CalibrationView
from flashrt.report.safe_text import visible

# The colours and shapes of the HTML page.
_MARKS = {
    "calibrated": ("#3d84c6", "o"),
    "outlier": ("#d9480f", "D"),
    "undersampled": ("#b8860b", "^"),
    "dead": ("#868686", "_"),
    "uncalibrated": ("#9b59b6", "x"),
}
_OTHER = ("#c2185b", "s")
_CLIP = "#e03131"
_ROWS = 25


def _mark(verdict: str) -> tuple[str, str]:
    return _MARKS.get(verdict, _OTHER)


def _plain(text: str) -> str:
    """Text in which matplotlib finds no mathematics and no control characters."""
    return visible(text).replace("$", r"\$")


def _amax(axes: Any, view: CalibrationView) -> None:
    for verdict, count in view.verdicts.items():
        colour, shape = _mark(verdict)
        mine = [(i, p) for i, p in enumerate(view.points) if p.verdict == verdict]
        scaled = [(i, p.amax) for i, p in mine if p.amax is not None]
        ranges = [(i, p.minimum, p.maximum) for i, p in mine if p.minimum and p.maximum]
        if ranges:
            axes.vlines(*zip(*ranges, strict=True), color=colour, alpha=0.45, lw=1.2)
        style = {"color": colour, "marker": shape, "s": 16, "zorder": 3}
        # Points without a scale have no place on a logarithmic axis: the legend counts them.
        x, y = zip(*scaled, strict=True) if scaled else ((), ())
        axes.scatter(x, y, label=_plain(f"{verdict}: {count}"), **style)
    axes.set_yscale("log")
    if view.limit > 0:
        axes.axhline(view.limit, color="#d9480f", ls="--", lw=1.2)
        axes.axhline(view.median, color="black", ls=":", lw=1)
        words = f"ceiling {view.factor:g} × median = {view.limit:.4g}"
        axes.annotate(words, (1, view.limit), xycoords=("axes fraction", "data"), ha="right",
                      va="bottom", fontsize=8)  # fmt: skip
    axes.set_title("amax of every point, in the order of the model; bar: frames", loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.05), ncols=6, fontsize=8, frameon=False)


def _dispersion(axes: Any, view: CalibrationView) -> None:
    for index, point in enumerate(view.widest()):
        colour, shape = _mark(point.verdict)
        axes.scatter(index, point.dispersion, color=colour, marker=shape, s=14, zorder=3)
        if point.clipped and point.amax and point.median:
            axes.vlines(index, point.amax / point.median, point.dispersion, color=_CLIP, lw=2)
    axes.set_title("dispersion (maximum ÷ median of frames), sorted; red: above the scale",
                   loc="left")  # fmt: skip


def _frames(axes: Any, view: CalibrationView) -> None:
    points = detailed(view, _ROWS)
    for row, point in enumerate(points):
        colour, _ = _mark(point.verdict)
        middle = point.median or 1.0
        axes.plot(point.values / middle, [row] * point.seen, "|", color=colour, ms=6)
        if point.amax is not None:
            if point.clipped:
                reach = (point.amax / middle, (point.maximum or 0.0) / middle)
                axes.plot(reach, [row, row], color=_CLIP, lw=4, alpha=0.7)
            axes.plot([point.amax / middle], [row], "|", color="black", ms=12, mew=2)
    names = [_plain(f"{shorten(p.name)}  {p.verdict}") for p in points]
    axes.set_yticks(range(len(points)), names, fontsize=7)
    axes.invert_yaxis()
    axes.set_title(f"frame by frame, {len(points)} of {len(view.widest())} points: "
                   "frame ÷ the point's median; black: the scale", loc="left")  # fmt: skip


def calibration_png(view: CalibrationView) -> bytes:
    """PNG bytes, 1320 pixels wide. The same view gives the same bytes with one matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 14), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    parts = figure.subplots(3, 1, height_ratios=(4, 2.5, 6))
    for draw, axes in zip((_amax, _dispersion, _frames), parts, strict=True):
        draw(axes, view)
        axes.spines[["top", "right"]].set_visible(False)
    heading = "\n".join(_plain(text) for text in (view.summary, clipping(view)))
    figure.suptitle(heading, fontsize=9, wrap=True)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()
