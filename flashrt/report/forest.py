"""Intervals one below the other against what they are compared with: a forest plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flashrt.race.decision import Interval
from flashrt.report import svg
from flashrt.report.scale import LinearScale

WIDTH = 1120
Line = tuple[float, str, str]
"""A level, its words, and its class: ``limit`` or ``one``."""

STYLE = """
.host { --c: #2f7ec4; } .treated { --c: #d9580f; } .null { --c: #7a6fd0; } .lost { --c: #8a8a8a; }
.good { --c: #2b8a3e; } .bad { --c: #e03131; }
.dots { stroke: var(--c); stroke-width: 4.5; stroke-linecap: round; fill: none; opacity: .6; }
.squares { stroke: var(--c); stroke-width: 4; stroke-linecap: square; fill: none; opacity: .6; }
.trace { stroke: var(--c); stroke-width: 1.6; fill: none; }
.band { fill: var(--c); opacity: .16; } .fill { fill: var(--c); } .bar { stroke: var(--c);
  stroke-width: 3; } .cap { stroke: var(--c); stroke-width: 2; }
.grid { stroke: #8883; } .frame { stroke: #8886; fill: none; }
.limit { stroke: #e03131; stroke-dasharray: 7 4; stroke-width: 1.6; }
.one { stroke: currentColor; stroke-width: 1.2; opacity: .65; }
.look { stroke: currentColor; stroke-dasharray: 2 4; opacity: .5; }
text { stroke: Canvas; stroke-width: 3px; paint-order: stroke; stroke-linejoin: round; }
text.note { fill-opacity: .72; } text.loud { font-weight: 600; }
figure { margin: 1rem 0 2rem; } figcaption { max-width: 70rem; margin-bottom: .5rem; }
.wide { overflow-x: auto; } .wide svg { max-width: none; }
""".strip()


@dataclass(frozen=True)
class Bar:
    """A row of :func:`forest`: an interval with its name and what it amounts to."""

    name: str
    seen: Interval
    says: str
    kind: str  # class: good, bad or lost
    loud: bool = False


def forest(rows: Sequence[Bar], lines: Sequence[Line], label: str, *, left: float = 130.0) -> str:
    """Intervals one below the other, against vertical lines; empty without any.

    ``left`` is where the names end, in pixels.
    """
    if not rows:
        return ""
    right, row = WIDTH - 330.0, 30
    bottom = row * len(rows) + 34
    ends = [v for bar in rows for v in (bar.seen.low, bar.seen.high)]
    x = LinearScale.around([*ends, *(level for level, _, _ in lines)], left, right)
    parts = []
    for value in x.ticks(70):
        parts.append(svg.line((x(value), 24), (x(value), bottom), "grid"))
        parts.append(svg.text((x(value), bottom + 16), x.said(value, 70), "middle", "note"))
    for level, words, kind in sorted(lines):
        parts.append(svg.line((x(level), 20), (x(level), bottom), kind))
        first = level == min(value for value, _, _ in lines) and len(lines) > 1
        parts.append(
            svg.text((x(level), 14), f"{words} {level:g}", "end" if first else "start", "loud")
        )
    for index, bar in enumerate(rows):
        y = 24 + row * (index + 0.5)
        low, middle, high = bar.seen.low, bar.seen.median, bar.seen.high
        words = f"{middle:.3f} [{low:.3f}, {high:.3f}] {bar.says}"
        loud = "loud" if bar.loud else ""
        marks = [
            svg.text((left - 12, y + 4), bar.name, "end", loud),
            svg.line((x(low), y), (x(high), y), f"bar {bar.kind}"),
            *(svg.line((x(e), y - 6), (x(e), y + 6), f"cap {bar.kind}") for e in (low, high)),
            f'<circle class="fill {bar.kind}" cx="{x(middle)}" cy="{y:g}" r="5"/>',
            svg.text((right + 16, y + 4), words, kind=loud),
        ]
        parts.append(svg.hover(f"{bar.name}: {words}", marks, bar.name))
    return svg.drawing(label, (WIDTH, bottom + 26), parts)
