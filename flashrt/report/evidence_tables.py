"""The tables of one receipt's page: controls, thresholds, environment, attempts, all as stated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flashrt.gate.evidence import Cost
from flashrt.race.decision import median
from flashrt.release.source import Body, short
from flashrt.report.evidence_view import EvidenceView, Lap
from flashrt.report.table import Table


def said(value: Any) -> str:
    """A value of a record in words."""
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(said(part) for part in value) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every fact of a record as its dotted name and its value, whatever a schema adds later."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from flat(value[key], f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(part, Mapping | list) for part in value):
        for index, part in enumerate(value):
            yield from flat(part, f"{name}[{index}]")
    else:
        yield name, said(value)


def _same(entry: Body) -> str:
    first, last = entry["digests"]
    return "bit-identical" if first == last else f"DIFFERS: {short(first)}, {short(last)}"


def _parity_held(view: EvidenceView) -> str:
    parity = view.evidence["parity"]
    same = parity["before"] == parity["after"]
    return "the same to the last digit" if same else "DIFFERS: see the picture"


def least_ns(view: EvidenceView) -> float:
    """Nanoseconds that a step needs at the least on a machine of the stated peaks; 0 if unknown."""
    stated = view.evidence["cost"]
    return Cost(
        stated["flops"], stated["bytes"], stated["peak_flops"], stated["peak_bytes_per_s"]
    ).least_ns()


def _roofline(lap: Lap, least: float) -> str:
    took = median([float(treated) for _, treated in lap.pairs])
    return f"{took / 1e6:.4g} ms" + ("" if took >= least else ": FASTER THAN THE ROOFLINE")


def controls(view: EvidenceView) -> Table:
    """What shows that the timed thing did its work: a row a control, a column a process."""
    evidence = view.evidence
    rows: dict[str, dict[int, str]] = {}

    def put(control: str, process: int, outcome: str) -> None:
        rows.setdefault(control, {})[process] = outcome

    for entry in evidence["empty_control"]:
        put("the host run twice, nothing attached", entry["process"], _same(entry))
    for entry in evidence["poison"]:
        for name in sorted(set(entry) - {"process"}):
            outcome = {True: "yes", False: "NO"}.get(entry[name], said(entry[name]))
            put(name.replace("_", " "), entry["process"], outcome)
    put("parity after the race, against before", 0, _parity_held(view))
    least = least_ns(view)
    for lap in view.races:
        if lap.pairs:
            floor = f"a step takes at least {least / 1e6:.4g} ms (roofline); took"
            put(floor, lap.process, _roofline(lap, least))
    for entry in evidence["rollback"]:
        put("the host after detaching, against before", entry["process"], _same(entry))
    every = sorted({process for row in rows.values() for process in row})
    columns = ("control", *(f"process {process}" for process in every))
    table = [(name, *(row.get(process, "") for process in every)) for name, row in rows.items()]
    return Table(columns, table, "controls, in the order in which they are made")


def processes(view: EvidenceView) -> Table:
    """What each process reports beside its races: set-up, load, and whatever else it names."""
    rows = []
    for run in view.evidence["processes"]:
        rest = {k: v for k, v in run.items() if k not in ("process", "race", "null")}
        for lap in ("race", "null"):
            series = run[lap]
            rest[lap] = {k: v for k, v in series.items() if k not in ("pairs", "blocks")}
        rows += [(str(run["process"]), name, value) for name, value in flat(rest)]
    return Table(
        ("process", "fact", "value"), rows, "each process; times of set-up are in neither arm"
    )


def diagnosis(view: EvidenceView) -> Table:
    """What was seen in the series beside their medians: drift, outliers, blocks lost."""
    laps = [(f"race {lap.process}", lap) for lap in view.races]
    laps += [(f"null {lap.process}", lap) for lap in view.nulls]
    found = [dict(flat(lap.diagnosis)) for _, lap in laps]
    names = sorted({name for seen in found for name in seen})
    rows = [(name, *(seen.get(name, "") for seen in found)) for name in names]
    columns = ("detected", *(name for name, _ in laps))
    return Table(columns, rows, "series by series; detected, and not averaged away")


def facts(name: str, record: Any, title: str) -> Table:
    """A record as a table."""
    return Table((name, "value"), list(flat(record)), title)


def attempts(receipt: Body) -> Table:
    """Earlier attempts at this cell: each spent a part of the error rate."""
    rows = [tuple(value for _, value in flat(a)) for a in receipt["attempts"]]
    names = [name for name, _ in flat(receipt["attempts"][0])] if rows else ["digest"]
    return Table(names, rows, "earlier attempts at this cell")
