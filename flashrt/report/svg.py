"""Pieces of inline SVG: scales with ticks, marks, and text that is text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from flashrt.report import safe_text

_ENOUGH = 5  # ticks on an axis: finer steps are not looked for
_STEPS = ((1,), (2, 5), (1.5, 3, 7), (1.2, 2.5, 4, 6, 8), [1 + i / 20 for i in range(180)])


@dataclass(frozen=True)
class LogScale:
    """Values from ``low`` to ``high`` (above 0) onto pixels from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Iterable[float], start: float, end: float) -> LogScale:
        """A scale with a little room around the positive values; 0.1 to 10 without any."""
        found = [v for v in values if v > 0 and math.isfinite(v)] or [0.1, 10.0]
        low, high = min(found), max(found)
        room = max((high / low) ** 0.04, 1.02)
        return cls(low / room, high * room, start, end)

    def __call__(self, value: float) -> float:
        """The pixel of a value; what is off the scale lies on its edge."""
        inside = min(max(value, self.low), self.high)
        share = math.log(inside / self.low) / math.log(self.high / self.low)
        return round(self.start + share * (self.end - self.start), 2)

    def ticks(self, apart: float = 30.0) -> list[float]:
        """Round values at least ``apart`` pixels from each other: decades, then finer steps."""
        first, last = (math.floor(math.log10(v)) for v in (self.low, self.high))
        found: list[float] = []
        for steps in _STEPS:
            if len(found) >= _ENOUGH:
                break
            for power in range(first, last + 1):
                for value in (round(step * 10.0**power, 12) for step in steps):
                    inside = self.low <= value <= self.high
                    if inside and all(abs(self(value) - self(other)) >= apart for other in found):
                        found.append(value)
        return sorted(found)


def number(value: float) -> str:
    """``0.001``, ``20``, ``3189``, ``1.2e+06``: short, for axes and labels."""
    return f"{value:.0f}" if 1000 <= abs(value) < 1e5 else f"{value:.3g}"


def text(at: tuple[float, float], said: str, anchor: str = "start", kind: str = "") -> str:
    """A line of text at ``(x, y)``."""
    x, y = at
    cls = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{cls}>{safe_text.html(said)}</text>'


def line(start: tuple[float, float], end: tuple[float, float], kind: str) -> str:
    """A straight line."""
    (x1, y1), (x2, y2) = start, end
    return f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def hover(title: str, parts: Iterable[str], data: str = "") -> str:
    """Marks that show a title when pointed at; ``data`` names what they stand for."""
    named = f' data-point="{safe_text.html(data)}"' if data else ""
    return f"<g{named}><title>{safe_text.html(title)}</title>{''.join(parts)}</g>"


class Labels:
    """Texts that do not lie over each other: one that has no room is left out."""

    def __init__(self) -> None:
        self.drawn: list[str] = []
        self._taken: list[tuple[float, float, float]] = []

    def put(
        self, at: tuple[float, float], said: str, anchor: str = "start", kind: str = ""
    ) -> None:
        """Draw the text at ``(x, y)`` if its place is free."""
        x, y = at
        width = 6.6 * safe_text.width(said)  # of 12 px letters, about
        left = x - width if anchor == "end" else x
        if all(abs(y - v) >= 14 or left + width < a or b < left for a, b, v in self._taken):
            self._taken.append((left, left + width, y))
            self.drawn.append(text(at, said, anchor, kind))


# One shape a verdict, so that the picture is read without its colours: around (0, 0), 9 px.
_SHAPES = {
    "calibrated": "M-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0z",
    "outlier": "M0,-5.5L5.5,0L0,5.5L-5.5,0z",
    "undersampled": "M0,-5L5,4.5L-5,4.5z",
    "dead": "M-4.5,-1.5h9v3h-9z",
    "uncalibrated": "M-4.5,-4.5L4.5,4.5M-4.5,4.5L4.5,-4.5",
}
_OTHER = "M-4,-4h8v8h-8z"


def mark(verdict: str, at: tuple[float, float], size: float = 1.0) -> str:
    """The verdict's mark at ``(x, y)``; ``size`` 1 is 9 pixels."""
    kind = verdict if verdict in _SHAPES else "other"
    shape = _SHAPES.get(verdict, _OTHER)
    scale = f" scale({size:g})" if size != 1.0 else ""
    return f'<path class="v {kind}" d="{shape}" transform="translate({at[0]} {at[1]}){scale}"/>'


def drawing(label: str, size: tuple[int, int], parts: Iterable[str]) -> str:
    """A whole ``<svg>`` with a name for those who cannot see it."""
    width, height = size
    return (
        f'<svg role="img" aria-label="{safe_text.html(label)}" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">' + "\n".join(parts) + "</svg>"
    )
