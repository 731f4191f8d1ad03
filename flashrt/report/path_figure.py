"""The path evidence: which seam's operator each process's captured graph called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flashrt.release.source import Body
from flashrt.report import safe_text, svg
from flashrt.report.calibration_figures import shorten
from flashrt.report.forest import WIDTH
from flashrt.report.table import Table

_NAMES, _ROW = 330, 20


@dataclass(frozen=True)
class Place:
    """Where a seam stands in the picture: its name without its number, and the number."""

    row: str
    column: int


def place(seam: str) -> Place:
    """``model.layers.7.mlp`` is column 7 of ``model.layers.*.mlp``; the last number counts."""
    parts = seam.split(".")
    numbers = [i for i, part in enumerate(parts) if part.isdigit() and len(part) <= 4]
    if not numbers:
        return Place(seam, 0)
    at = numbers[-1]
    return Place(".".join([*parts[:at], "*", *parts[at + 1 :]]), int(parts[at]))


def calls(paths: Sequence[Body]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Of each seam that was expected or called: its operator, and its calls by process."""
    seams: dict[str, str] = {}
    for path in paths:
        seams |= dict.fromkeys(path["graph_calls"], "not expected") | dict(path["expected"])
    return {
        seam: (operator, tuple(path["graph_calls"].get(seam, 0) for path in paths))
        for seam, operator in sorted(seams.items())
    }


def _square(at: tuple[float, float], size: float, kind: str) -> str:
    x, y = at
    return f'<rect class="fill {kind}" x="{x:g}" y="{y:g}" width="{size:g}" height="{size:g}"/>'


def path(paths: Sequence[Body]) -> str:
    """A square a seam: filled where every process's graph calls its operator, else crossed out."""
    found = calls(paths)
    if not found:
        return ""
    places = {seam: place(seam) for seam in found}
    rows = sorted({p.row for p in places.values()})
    columns = sorted({p.column for p in places.values()})
    step = min(22.0, (WIDTH - _NAMES - 10) / len(columns))
    size = max(step - 4, 1.5)
    parts = []
    for seam, (operator, by_process) in found.items():
        x = _NAMES + columns.index(places[seam].column) * step
        y = 6 + rows.index(places[seam].row) * _ROW
        good = all(count > 0 for count in by_process) and operator != "not expected"
        marks = [_square((x, y), size, "good" if good else "bad")]
        if not good:
            marks.append(svg.line((x, y), (x + size, y + size), "one"))
            marks.append(svg.line((x, y + size), (x + size, y), "one"))
        said = ", ".join(map(str, by_process))
        parts.append(svg.hover(f"{seam}: {operator}, calls in each graph: {said}", marks, seam))
    for index, row in enumerate(rows):
        parts.append(
            svg.text((_NAMES - 10, 6 + index * _ROW + 13), shorten(safe_text.visible(row)), "end")
        )
    bottom = 6 + len(rows) * _ROW
    last = -40.0
    for index, column in enumerate(columns):
        x = _NAMES + index * step + size / 2
        if x - last >= 36:
            parts.append(svg.text((x, bottom + 14), str(column), "middle", "note"))
            last = x
    return svg.drawing(
        "operators of every seam in the captured graphs", (WIDTH, bottom + 22), parts
    )


def table(paths: Sequence[Body]) -> Table:
    """Each process's counters."""
    rows = []
    for run in paths:
        called: Mapping[str, int] = run["graph_calls"]
        reached = sum(called.get(seam, 0) > 0 for seam in run["expected"])
        operators = len(set(run["expected"].values()))
        numbers = (run["replays"], run["dispatched"], run["fallbacks"])
        rows.append(
            (
                str(run["process"]), f"{reached} of {len(run['expected'])}", str(operators),
                *(str(number) for number in numbers),
            )
        )  # fmt: skip
    columns = (
        "process", "seams reached", "operators", "replays", "calls outside the band", "fallbacks",
    )  # fmt: skip
    return Table(columns, rows, "what the captured graphs ran, process by process")


def chains(paths: Sequence[Body]) -> Table:
    """The chains that were attached as one each, and in how many processes; empty without any."""
    found: dict[tuple[str, tuple[str, ...]], int] = {}
    for run in paths:
        for chain in run.get("chains", ()):
            key = chain["producer"], tuple(chain["readers"])
            found[key] = found.get(key, 0) + 1
    rows = [
        (producer, ", ".join(readers), f"{count} of {len(paths)}")
        for (producer, readers), count in sorted(found.items())
    ]
    return Table(("producer", "readers", "processes"), rows, "chains, each bound and judged as one")
