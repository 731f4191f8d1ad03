"""The three figures of a calibration: amax under the ceiling, dispersion, and what is clipped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from flashrt.report import svg
from flashrt.report.calibration_view import PLAIN, CalibrationView, PointView
from flashrt.report.svg import LogScale, number

_WIDTH, _LEFT, _RIGHT = 1120, 64, 20
_ROW, _NAMES, _SAID = 22, 330, 830  # pixels: a row, where names end, where words begin
_MOST_TICKS = 64
MOST_ROWS = 40

STYLE = """
.calibrated { --c: #3d84c6; } .outlier { --c: #d9480f; } .undersampled { --c: #b8860b; }
.dead { --c: #868686; } .uncalibrated { --c: #9b59b6; } .other { --c: #c2185b; }
path.v { fill: var(--c); stroke: var(--c); stroke-width: 1.6; } b.v { color: var(--c); }
.range { stroke: var(--c); stroke-width: 2; opacity: .45; }
.frame { stroke: var(--c); opacity: .5; }
.clip { stroke: #e03131; stroke-width: 7; opacity: .75; }
.thin { stroke-width: 3; } .scale { stroke: currentColor;
  stroke-width: 2; } .grid { stroke: #8883; } .ceiling { stroke: #d9480f; stroke-dasharray: 7 4;
  stroke-width: 1.5; } .middle { stroke: currentColor; stroke-dasharray: 2 4; opacity: .7; }
text { stroke: Canvas; stroke-width: 3px; paint-order: stroke; stroke-linejoin: round; }
text.note { fill-opacity: .72; } text.loud { font-weight: 600; }
figure { margin: 1rem 0 2rem; }
figcaption { max-width: 70rem; margin-bottom: .5rem; } .legend span { margin-right: 1.6rem; }
.legend svg { vertical-align: -3px; overflow: visible; } .wide { overflow-x: auto; }
.wide svg { max-width: none; }
""".strip()


def said(point: PointView) -> str:
    """A point in one sentence, for whoever points at it."""
    if point.amax is None:
        return f"{point.name}: {point.verdict}, no scale, seen in {point.seen} frames"
    spread = "none" if point.dispersion is None else f"{point.dispersion:.3f}"
    return (
        f"{point.name}: {point.verdict}, amax {point.amax:.6g}, frames {point.minimum:.4g} to "
        f"{point.maximum:.4g}, median {point.median:.4g}, dispersion {spread}, {clipped(point)}"
    )


def clipped(point: PointView) -> str:
    """``nothing clipped``, or how many frames are and how far the largest one reaches."""
    if not point.clipped:
        return "nothing clipped"
    share = _percent(point.clipped / point.seen)
    reach = _percent((point.overshoot or 1.0) - 1)
    return f"{point.clipped} of {point.seen} frames clipped ({share}), by up to {reach}"


def _percent(share: float) -> str:
    value = 100 * share
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %"


def _grid(y: LogScale) -> Iterator[str]:
    for value in y.ticks():
        yield svg.line((_LEFT, y(value)), (_WIDTH - _RIGHT, y(value)), "grid")
        yield svg.text((_LEFT - 8, y(value) + 4), number(value), "end", "note")


def _columns(count: int) -> Sequence[float]:
    """The middle of each of ``count`` columns."""
    step = (_WIDTH - _LEFT - _RIGHT) / max(count, 1)
    return [round(_LEFT + step * (i + 0.5), 2) for i in range(count)]


def _name_beside(labels: svg.Labels, point: PointView, at: tuple[float, float]) -> None:
    """The point's name on the side of its mark that is inside the figure."""
    x, y = at
    left = x > _WIDTH * 0.6
    labels.put((x - 9 if left else x + 9, y + 4), shorten(point.name), "end" if left else "start")


def _mark_size(count: int) -> float:
    """Smaller marks where there are many."""
    return 1.0 if count <= 600 else 0.6


def amax(view: CalibrationView) -> str:
    """Every point's amax and range over frames, in the order of the model, under the ceiling."""
    bottom, height = 360, 420
    reach = [v for p in view.points for v in (p.amax, p.minimum, p.maximum) if v]
    y = LogScale.around([*reach, view.median or 1.0, view.limit or 1.0], bottom, 16)
    parts = list(_grid(y))
    labels = svg.Labels()
    if view.limit > 0:
        for value, kind, what in (
            (view.median, "middle", f"median {number(view.median)}"),
            (view.limit, "ceiling", f"ceiling {view.factor:g} × median = {number(view.limit)}"),
        ):
            parts.append(svg.line((_LEFT, y(value)), (_WIDTH - _RIGHT, y(value)), kind))
            labels.put((_WIDTH - _RIGHT, y(value) - 5), what, "end", "loud")
    size = _mark_size(len(view.points))
    high: list[tuple[float, float, PointView]] = []
    for point, x in zip(view.points, _columns(len(view.points)), strict=True):
        at = bottom + 22.0 if point.amax is None else y(point.amax)
        marks = [svg.mark(point.verdict, (x, at), size)]
        if point.amax is not None and point.minimum and point.maximum:
            ends = (x, y(point.minimum)), (x, y(point.maximum))
            marks.insert(0, svg.line(*ends, f"range {point.verdict}"))
        if point.amax is not None and point.amax > view.limit:
            high.append((point.amax, x, point))
        parts.append(svg.hover(said(point), marks, point.name))
    if any(point.amax is None for point in view.points):
        parts.append(svg.text((_LEFT - 8, bottom + 26), "no scale", "end", "loud"))
    for value, x, point in sorted(high, key=lambda one: -one[0]):
        _name_beside(labels, point, (x, y(value)))
    parts += labels.drawn  # last: over the marks
    words = f"{len(view.points)} points in the order of the model, first to last →"
    parts.append(svg.text((_LEFT, height - 8), words, kind="note"))
    return svg.drawing("amax of every point against the ceiling", (_WIDTH, height), parts)


def dispersion(view: CalibrationView) -> str:
    """Every point's dispersion (maximum / median over frames), the widest first."""
    bottom, height = 260, 300
    points = view.widest()
    y = LogScale(1.0, max([1.05, *(p.dispersion or 1.0 for p in points)]) * 1.02, bottom, 16)
    parts = list(_grid(y))
    size, labels = _mark_size(len(points)), svg.Labels()
    for index, (point, x) in enumerate(zip(points, _columns(len(points)), strict=True)):
        top = y(point.dispersion or 1.0)
        marks = [svg.line((x, y(1.0)), (x, top), f"range {point.verdict}")]
        if point.clipped and point.amax and point.median:
            marks.append(svg.line((x, y(point.amax / point.median)), (x, top), "clip thin"))
        marks.append(svg.mark(point.verdict, (x, top), size))
        parts.append(svg.hover(said(point), marks, point.name))
        if index == 0:
            _name_beside(labels, point, (x, top))
    parts += labels.drawn
    words = "maximum ÷ median over frames; points from the widest to the narrowest →"
    parts.append(svg.text((_LEFT, height - 8), words, kind="note"))
    return svg.drawing("dispersion of every point, sorted", (_WIDTH, height), parts)


def detailed(view: CalibrationView, most: int = MOST_ROWS) -> tuple[PointView, ...]:
    """The points shown frame by frame: what is not plain or clips most, then the widest."""
    loud = [p for p in view.widest() if p.verdict != PLAIN]
    clips = [p for p in view.clipping() if p.dispersion is not None]
    order = [*loud[: most // 2], *clips[: most // 4], *view.widest()]
    place = {point: index for index, point in enumerate(view.widest())}
    return tuple(sorted(list(dict.fromkeys(order))[:most], key=place.__getitem__))


def shorten(name: str, most: int = 46) -> str:
    """A name that fits its column: the middle gives way."""
    if len(name) <= most:
        return name
    return f"{name[: most // 3]}…{name[-(most - most // 3 - 1) :]}"


def _ticks(point: PointView) -> Iterable[float]:
    """At most 64 of the point's values, both ends among them."""
    last = point.seen - 1
    step = max(last / (_MOST_TICKS - 1), 1.0)
    return [float(point.values[round(i * step)]) for i in range(min(point.seen, _MOST_TICKS))]


def frames(view: CalibrationView) -> str:
    """Some points frame by frame, relative to the point's median: scale, range and clipped part."""
    points = detailed(view)
    height = _ROW * len(points) + 46
    spread = [v / p.median for p in points for v in (p.minimum, p.maximum) if p.median and v]
    x = LogScale.around([1.0, *spread], _NAMES + 20, _SAID - 20)
    bottom = height - 30
    parts = []
    for value in x.ticks():
        parts.append(svg.line((x(value), 0), (x(value), bottom), "grid"))
        parts.append(svg.text((x(value), bottom + 16), number(value), "middle", "note"))
    parts.append(svg.text((_NAMES, bottom + 16), "frame ÷ the point's median", "end", "note"))
    words = "verdict · dispersion · clipped frames"
    parts.append(svg.text((_SAID + 14, bottom + 16), words, kind="note"))
    for index, point in enumerate(points):
        y = _ROW * index + _ROW / 2
        middle = point.median or 1.0
        ends = (x((point.minimum or 0.0) / middle), x((point.maximum or 0.0) / middle))
        marks = [svg.text((_NAMES, y + 4), shorten(point.name), "end")]
        marks.append(svg.line((ends[0], y), (ends[1], y), f"range {point.verdict}"))
        for value in _ticks(point):
            at = x(value / middle)
            marks.append(svg.line((at, y - 5), (at, y + 5), f"frame {point.verdict}"))
        if point.amax is not None:
            at = x(point.amax / middle)
            if point.clipped:
                marks.append(svg.line((at, y), (ends[1], y), "clip"))
            marks.append(svg.line((at, y - 9), (at, y + 9), "scale"))
        marks.append(svg.mark(point.verdict, (_SAID, y)))
        words = f"{point.verdict} · {point.dispersion or 0.0:.2f} · {_short(point)}"
        marks.append(svg.text((_SAID + 14, y + 4), words))
        parts.append(svg.hover(said(point), marks, point.name))
    return svg.drawing("points frame by frame", (_WIDTH, height), parts)


def _short(point: PointView) -> str:
    if not point.clipped:
        return "nothing clipped"
    return f"clips {point.clipped} of {point.seen}, +{_percent((point.overshoot or 1.0) - 1)}"
