"""The pictures of a race: paired ratios, intervals against the margin, times and foreign load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from flashrt.race.decision import Interval, median
from flashrt.report import svg
from flashrt.report.evidence_view import EvidenceView, Lap
from flashrt.report.forest import WIDTH, Bar, forest
from flashrt.report.scale import LinearScale, bulk

_LEFT, _GAP, _COLUMNS = 64, 24, 3


@dataclass(frozen=True)
class Panel:
    """One process's part of a figure: its pixels, and its horizontal scale over pairs."""

    left: float
    right: float
    top: float
    bottom: float
    pairs: int

    def x(self, pair: float) -> float:
        """The pixel of a pair's number, from 0."""
        step = (self.right - self.left - 12) / max(self.pairs, 1)
        return round(self.left + 6 + step * (pair + 0.5), 2)


def panels(laps: Sequence[Lap], height: float, top: float = 26.0) -> list[Panel]:
    """A panel for each process, three in a row, each as high as asked for."""
    columns = min(len(laps), _COLUMNS)
    width = (WIDTH - _LEFT - 8 - _GAP * (columns - 1)) / max(columns, 1)
    found = []
    for index, lap in enumerate(laps):
        left = _LEFT + (index % columns) * (width + _GAP)
        y = top + (index // columns) * (height + 62)
        found.append(Panel(left, left + width, y, y + height, len(lap.pairs)))
    return found


def _size(drawn: Sequence[Panel], below: float) -> tuple[int, int]:
    return WIDTH, round(max(panel.bottom for panel in drawn) + below)


def dots(points: Iterable[tuple[float, float]], kind: str) -> str:
    """Many equal marks as one path: a line of no length with round or square ends is a mark."""
    path = "".join(f"M{x:g} {y:g}h0" for x, y in points)
    return f'<path class="{kind}" d="{path}"/>' if path else ""


def _axis(panel: Panel, y: LinearScale, first: bool, apart: float = 34.0) -> Iterator[str]:
    for value in y.ticks(apart):
        yield svg.line((panel.left, y(value)), (panel.right, y(value)), "grid")
        if first:
            yield svg.text((panel.left - 8, y(value) + 4), y.said(value, apart), "end", "note")
    size = f'width="{panel.right - panel.left:g}" height="{panel.bottom - panel.top:g}"'
    yield f'<rect class="frame" x="{panel.left:g}" y="{panel.top:g}" {size}/>'


def _span(panel: Panel, y: LinearScale, seen: Interval, kind: str) -> Iterator[str]:
    """The interval as a band over the panel, with the median as a line."""
    top, bottom = y(seen.high), y(seen.low)
    yield (
        f'<rect class="band {kind}" x="{panel.left:g}" y="{top:g}" '
        f'width="{panel.right - panel.left:g}" height="{max(bottom - top, 1):g}"/>'
    )
    yield svg.line((panel.left, y(seen.median)), (panel.right, y(seen.median)), f"trace {kind}")


def found(lap: Lap) -> str:
    """A race's median with its bounds, or why there are none."""
    if lap.seen is None:
        return f"no interval ({lap.stopped})"
    return f"{lap.seen.median:.3f} [{lap.seen.low:.3f}, {lap.seen.high:.3f}]"


def counted(lap: Lap) -> str:
    """How many pairs were taken, and how many do not count."""
    lost = 2 * sum(not kept for kept in lap.kept)
    return f"{len(lap.pairs)} pairs" + (f", {lost} not kept" if lost else "")


def _marks(lap: Lap, panel: Panel, y: LinearScale, kind: str) -> Iterator[str]:
    shapes = {"ABBA": f"dots {kind}", "BAAB": f"squares {kind}"}
    groups: dict[str, list[tuple[float, float]]] = {}
    for index, ratio in enumerate(lap.ratios):
        order = lap.orders[index // 2]
        shape = shapes.get(order, f"dots {kind}") if lap.kept_pair(index) else "dots lost"
        groups.setdefault(shape, []).append((panel.x(index), y(ratio)))
    for shape, points in sorted(groups.items()):
        yield dots(points, shape)
    for above in (True, False):
        far = [r for r in lap.ratios if (r > y.high if above else r < y.low)]
        if far:
            word = (
                f"{len(far)} {'above' if above else 'below'}, to {(max if above else min)(far):.3g}"
            )
            at = panel.top + 14 if above else panel.bottom - 6
            yield svg.text((panel.right - 6, at), word, "end", "loud")


def ratios(laps: Sequence[Lap], lines: Sequence[tuple[float, str, str]], kind: str) -> str:
    """Every pair's ratio in the order of time, a panel a process, all on one vertical scale.

    ``lines`` are levels with their words and class. Empty without a race.
    """
    if not laps:
        return ""
    drawn = panels(laps, 250)
    inner = [r for lap in laps for r in bulk(lap.ratios, 3.0)]
    bounds = [b for lap in laps if lap.seen for b in (lap.seen.low, lap.seen.high)]
    levels = [level for level, _, _ in lines]
    parts: list[str] = []
    for index, (lap, panel) in enumerate(zip(laps, drawn, strict=True)):
        y = LinearScale.around([*inner, *bounds, *levels], panel.bottom, panel.top)
        parts += _axis(panel, y, index % _COLUMNS == 0)
        if lap.seen is not None:
            parts += _span(panel, y, lap.seen, kind)
        for level, _, style in lines:
            parts.append(svg.line((panel.left, y(level)), (panel.right, y(level)), style))
        for look in lap.looks:
            at = panel.x(look - 0.5)
            parts.append(svg.line((at, panel.top), (at, panel.bottom), "look"))
        marks = _marks(lap, panel, y, kind)
        name = f"process {lap.process}"
        parts.append(svg.hover(f"{name}: {counted(lap)}, {found(lap)}", marks, name))
        parts.append(svg.text((panel.left, panel.top - 9), f"{name} · {found(lap)}", kind="loud"))
        words = "; ".join(f"{what} {level:g}" for level, what, _ in lines)
        below = f"{counted(lap)} →" + (f" {words}" if index == 0 else "")
        parts.append(svg.text((panel.left, panel.bottom + 18), below, kind="note"))
    return svg.drawing("ratio of every pair in the order of time", _size(drawn, 28), parts)


def intervals(view: EvidenceView) -> str:
    """Each process's interval and the claimed envelope, against the margin and against 1."""
    head, margin = view.statistics["speedup"], view.margin
    found = [(f"process {lap.process}", lap.seen) for lap in view.races if lap.seen]
    if head is not None:
        found.append(("claimed", Interval(head["low"], head["median"], head["high"])))
    rows = []
    for name, seen in found:
        says, kind = "undecided", "lost"
        if seen.low > margin:
            says, kind = "past the margin", "good"
        elif seen.high < margin:
            says, kind = "below the margin", "bad"
        rows.append(Bar(name, seen, says, kind, name == "claimed"))
    lines = [(1.0, "host", "one"), (margin, "margin", "limit")]
    return forest(rows, lines, "interval of each process against the margin")


def nulls(view: EvidenceView) -> str:
    """Each process's interval of the host against itself: does it contain 1, and is it narrow?"""
    width = float(view.thresholds["null_width"])
    rows = []
    for lap in view.nulls:
        if lap.seen is None:
            continue
        narrow = lap.seen.high < lap.seen.low * width
        inside = lap.seen.low <= 1.0 <= lap.seen.high
        says = f"width {lap.seen.high / lap.seen.low:.4f}"
        says += "" if narrow else f", not below {width:g}"
        says += "" if inside else ", without 1"
        kind = "good" if narrow and inside else "bad"
        rows.append(Bar(f"process {lap.process}", lap.seen, says, kind))
    return forest(rows, [(1.0, "the same arm", "one")], "null control of each process")


def _running(times: Sequence[int], reach: int = 4) -> list[float]:
    """The median of each time with its neighbours: what drifts, without the spikes."""
    around = (times[max(0, i - reach) : i + reach + 1] for i in range(len(times)))
    return [median([float(t) for t in part]) for part in around]


def _foreign(lap: Lap, panel: Panel, limit: float, top: float) -> Iterator[str]:
    """Bars of the load of others under the panel, block by block, with the limit."""
    bottom = top + 44
    y = LinearScale(0.0, max([limit * 1.25, *lap.foreign]), bottom, top)
    for index, share in enumerate(lap.foreign):
        x = panel.x(2 * index + 0.5)
        kind = "host" if lap.kept[index] else "bad"
        yield svg.line((x, bottom), (x, min(y(share), bottom - 0.5)), f"bar {kind}")
    yield svg.line((panel.left, bottom), (panel.right, bottom), "one")
    yield svg.line((panel.left, y(limit)), (panel.right, y(limit)), "limit")


def _moved(lap: Lap) -> str:
    """What was detected about time: how far the host moved, and whether the ratio did."""
    moved = lap.diagnosis.get("drift")
    words = "too short to tell drift" if moved is None else f"host moved {moved:.3f} ×"
    words += " (drift)" if lap.diagnosis.get("drifted") else ""
    return words + (" · RATIO SHIFTED" if lap.diagnosis.get("shifted") else "")


def drift(view: EvidenceView) -> str:
    """Times of both arms in the order of time, and what others used of the machine meanwhile."""
    if not view.races:
        return ""
    drawn = panels(view.races, 230)
    limit = float(view.thresholds["foreign_limit"])
    all_times = [t / 1e6 for lap in view.races for pair in lap.pairs for t in pair]
    parts: list[str] = []
    bottoms = []
    for index, (lap, panel) in enumerate(zip(view.races, drawn, strict=True)):
        base = panel.bottom - 58
        upper = Panel(panel.left, panel.right, panel.top, base, panel.pairs)
        y = LinearScale.around(bulk(all_times), base, panel.top)
        parts += _axis(upper, y, index % _COLUMNS == 0, 26.0)
        for arm, name, shape in ((0, "host", "dots"), (1, "treated", "squares")):
            times = [pair[arm] for pair in lap.pairs]
            points = [(panel.x(i), y(t / 1e6)) for i, t in enumerate(times)]
            line = " ".join(f"{panel.x(i):g},{y(t / 1e6):g}" for i, t in enumerate(_running(times)))
            if not times:
                continue
            middle = median([float(t) for t in times]) / 1e6
            title = f"{name}, process {lap.process}: median {middle:.3f} ms"
            marks = [
                dots(points, f"{shape} {name}"),
                f'<polyline class="trace {name}" points="{line}"/>',
            ]
            parts.append(svg.hover(title, marks, f"{name} {lap.process}"))
        parts += _foreign(lap, panel, limit, base + 12)
        bottoms.append(panel.bottom)
        name = f"process {lap.process} · {_moved(lap)}"
        parts.append(svg.text((panel.left, panel.top - 9), name, kind="loud"))
        note = "ms a step; below, load of others by block" if index == 0 else "pairs →"
        parts.append(svg.text((panel.left, panel.bottom + 18), note, kind="note"))
    return svg.drawing("times of both arms in the order of time", _size(drawn, 28), parts)
