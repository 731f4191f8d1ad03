"""Parity of every held-out frame, metric by metric, before and after the race."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flashrt.release.source import Body
from flashrt.report import safe_text, svg
from flashrt.report.calibration_figures import shorten
from flashrt.report.evidence_view import EvidenceView
from flashrt.report.forest import WIDTH
from flashrt.report.race_figures import dots
from flashrt.report.scale import LinearScale

_LEFT, _RIGHT, _HEIGHT, _GAP, _APART = 330, 250, 96, 28, 22.0
_NAMED = 12  # frames whose names have room below their columns


@dataclass(frozen=True)
class Row:
    """One metric: how it is read from a window, and the levels it is held against."""

    name: str
    read: Callable[[Body], Any]
    levels: tuple[tuple[float, str], ...] = ()


def _share(key: str) -> Callable[[Body], Any]:
    """Reads a count, or a sum, per position, token or element of the frame."""

    def read(window: Body) -> Any:
        units = next(window[name] for name in _UNITS if name in window)
        return None if window[key] is None else window[key] / units

    return read


def _plain(key: str) -> Callable[[Body], Any]:
    return lambda window: window[key]


_UNITS = ("positions", "tokens", "elements")
# Field of a window, the metric's name in bands and floors, its words, whether it is a total.
_KNOWN = (
    ("top1_agree", "top1_agreement", "top-1 agreement", True),
    ("identical", "token_identity", "tokens identical, share", True),
    ("near_ties", "", "near-ties in top-1, share", True),
    ("kl_sum", "kl_mean", "KL, mean (nat)", True),
    ("kl_max", "kl_max", "KL, worst position (nat)", False),
    ("cosine_min", "cosine", "cosine, worst row", False),
    ("cosine", "cosine", "cosine", False),
    ("max_abs", "max_abs", "largest difference", False),
    ("scale", "scale", "size, treated ÷ host", False),
)
_UNDRAWN = {*_UNITS, "frame", "distinct", "nll_host_sum", "nll_treated_sum"}


def rows_of(view: EvidenceView) -> list[Row]:
    """The metrics that the windows have, the banded one with its bands, each with its bounds.

    A number of a window that no metric is known for is drawn under its own name.
    """
    stated, windows = view.thresholds, view.evidence["parity"]["before"]
    held: dict[str, list[tuple[float, str]]] = {"scale": [(1.0, "same")]}
    held["scale"] += [(bound, "bound") for bound in stated.get("scale_bounds", ())]
    held.setdefault(stated["metric"], []).extend(
        (stated["bands"][band], band) for band in ("pass", "warn")
    )
    for name, value in stated["floors"].items():
        held.setdefault(name, []).append((value, "floor"))
    fields = set(windows[0]) if windows else set()
    rows = []
    for key, metric, words, total in _KNOWN:
        if key == "near_ties" and not any(window.get(key) for window in windows):
            continue
        if key in fields:
            read = _share(key) if total else _plain(key)
            rows.append(Row(words, read, tuple(held.get(metric, ()))))
    known = {key for key, *_ in _KNOWN} | _UNDRAWN
    numbers = sorted(k for k in fields - known if _drawable([w[k] for w in windows]))
    return [*rows, *(Row(k.replace("_", " "), _plain(k)) for k in numbers)]


def _drawable(values: Sequence[Any]) -> bool:
    """Numbers that are not all 0: a row of zeros says nothing."""
    plain = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return plain and any(values)


def _short(value: float) -> str:
    return f"{value:.4g}"


def _row(row: Row, before: Sequence[Body], after: Sequence[Body], top: float) -> Iterator[str]:
    bottom = top + _HEIGHT - _GAP
    readings = [[row.read(window) for window in side] for side in (before, after)]
    found = [v for side in readings for v in side if v is not None]
    # A bound that is far from every value would flatten them: it is named in words instead.
    span = (max(found) - min(found)) if found else 0.0
    near = [(v, n) for v, n in row.levels if found and min(abs(v - f) for f in found) <= 8 * span]
    y = LinearScale.around([*found, *(level for level, _ in near)], bottom, top)
    for value in y.ticks(_APART):
        yield svg.line((_LEFT, y(value)), (WIDTH - _RIGHT, y(value)), "grid")
        yield svg.text((_LEFT - 8, y(value) + 4), y.said(value, _APART), "end", "note")
    for level, name in near:
        kind = "limit" if name != "same" else "one"
        yield svg.line((_LEFT, y(level)), (WIDTH - _RIGHT, y(level)), kind)
    step = (WIDTH - _RIGHT - _LEFT) / max(len(before), 1)
    for index, (first, last) in enumerate(zip(*readings, strict=False)):
        x = round(_LEFT + step * (index + 0.5), 2)
        said = [_short(v) if v is not None else "not finite" for v in (first, last)]
        words = f"{before[index]['frame']}: {row.name} {said[0]} before, {said[1]} after the race"
        marks = []
        if first is not None:
            marks.append(dots([(x, y(first))], "dots host"))
        if last is not None:
            marks.append(f'<circle class="ring" cx="{x:g}" cy="{y(last):g}" r="5.5"/>')
        if first is None or last is None:
            marks.append(svg.text((x, bottom - 4), "NaN", "middle", "loud"))
        yield svg.hover(words, marks, str(before[index]["frame"]))
    yield svg.text((12, top + 14), row.name, kind="loud")
    if row.levels:
        words = ", ".join(f"{name} {level:.4g}" for level, name in row.levels)
        yield svg.text((12, top + 32), words, kind="note")
    if found:
        least, most = _short(min(found)), _short(max(found))
        words = f"all {least}" if least == most else f"{least} to {most}"
        yield svg.text((WIDTH - _RIGHT + 14, top + 14), words)


def parity(view: EvidenceView) -> str:
    """A row a metric, a column a frame: dot before the race, ring after it."""
    evidence = view.evidence["parity"]
    before, after = evidence["before"], evidence["after"]
    if not before:
        return ""
    parts: list[str] = []
    rows = rows_of(view)
    for index, row in enumerate(rows):
        parts += _row(row, before, after, 8 + index * _HEIGHT)
    height = 8 + len(rows) * _HEIGHT + 14
    step = (WIDTH - _RIGHT - _LEFT) / len(before)
    if len(before) <= _NAMED:
        for index, window in enumerate(before):
            at = (_LEFT + step * (index + 0.5), height - 8)
            parts.append(
                svg.text(
                    at,
                    shorten(safe_text.visible(window["frame"]), max(int(step / 8.5), 3)),
                    "middle",
                    "note",
                )
            )
    words = f"{len(before)} frames, {evidence['label'].replace('_', ' ')}"
    parts.append(svg.text((12, height - 8), words, kind="note"))
    return svg.drawing("parity of every frame", (WIDTH, height), parts)
