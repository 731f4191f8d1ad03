"""What a spec's boundary, slots, state and stages must mean, beyond what the schema can say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flashrt.document.problem import Problem
from flashrt.spec.domain import Domain, DomainKind, domain
from flashrt_runtime.reason import Refusal

At = Callable[..., Problem]
Entry = Mapping[str, Any]

# How many axes each layout has; a table may have more than two.
_RANKS = {"out_in": (2, 2), "vector": (1, 1), "conv_out_in_t_h_w": (5, 5), "table": (2, 8)}
_INTEGERS = ("int64", "int32")
_CADENCES = {"token_loop": "per_token", "fixed_steps": "per_step"}


def boundary(value: Entry, at: At) -> Iterator[Problem]:
    """What is wrong with a region: rows, points, state, domains, layouts, parts."""
    sides, declared = value["boundary"], value["dims"]
    if sides["rows"] not in declared:
        yield at("$.boundary.rows", f"the dim {sides['rows']} is not declared")
    yield from _points(value["calibration"]["points"], sides["outputs"], at)
    for name, axis in value["variants"].items():
        if "dim" in axis and axis["dim"] not in declared:
            what = f"the dim {axis['dim']} is not declared"
            yield at(f"$.variants.{name}.dim", what, "add it to $.dims")
    for name, tensor in sides["inputs"].items():
        where = f"$.boundary.inputs.{name}"
        yield from _state(where, tensor, sides["outputs"], at)
        yield from _domain(where, tensor, at)
    for name, tensor in sides["outputs"].items():
        for field in ("carries", "domain", "optional"):
            if field in tensor:
                where = f"$.boundary.outputs.{name}.{field}"
                yield at(where, f"an output has no {field}", "say it at an input")
    for name, slot in value["weights"].items():
        low, high = _RANKS[slot["layout"]]
        if not low <= len(slot["dims"]) <= high:
            what = f"the layout {slot['layout']} does not have {len(slot['dims'])} axes"
            yield at(f"$.weights.{name}.layout", what, "layout and dims must agree")
    own = f"{value['name']}@{value['version']}"
    for i, part in enumerate(value.get("composes", ())):
        if part == own:
            yield at(f"$.composes[{i}]", f"{own} is not a part of itself", "name its parts")


def _points(points: Entry, outputs: Entry, at: At) -> Iterator[Problem]:
    """A point may be an output itself; then it has that output's shape."""
    for name in sorted(set(points) & set(outputs)):
        if any(points[name].get(f) != outputs[name].get(f) for f in ("dims", "when")):
            do = "say the same dims and when, or give the point another name"
            yield at(f"$.calibration.points.{name}", f"{name} is an output too", do)


def _state(where: str, tensor: Entry, outputs: Mapping[str, Entry], at: At) -> Iterator[Problem]:
    """A state input takes an output of role state, of the same dtype and count."""
    source = tensor.get("carries")
    if (tensor.get("role") == "state") != (source is not None):
        what = "role: state and carries: OUTPUT belong together"
        yield at(f"{where}.role" if source is None else f"{where}.carries", what, "say both")
        return
    if source is None:
        return
    if source not in outputs:
        known = ", ".join(sorted(outputs))
        yield at(f"{where}.carries", f"there is no output {source}", f"there is {known}")
        return
    if outputs[source].get("role") != "state":
        what = f"the output {source} is not of role state"
        yield at(f"{where}.carries", what, "only state is carried to the next call")
    for field in ("repeat", "dtype"):
        if tensor.get(field) != outputs[source].get(field):
            what = f"{field} is not the same here and at the output {source}"
            yield at(f"{where}.{field}", what, "what is carried comes back as it is")


def _domain(where: str, tensor: Entry, at: At) -> Iterator[Problem]:
    entry = tensor.get("domain")
    if entry is None:
        if tensor["dtype"] in (*_INTEGERS, "bool"):
            what = f"the values of an input of dtype {tensor['dtype']} are not said"
            yield at(f"{where}.dtype", what, "add a domain of kind index or ranges")
        return
    path = f"{where}.domain"
    try:
        found = domain(entry)
    except Refusal:  # the reader says it at the bound itself
        return
    yield from _fits(path, tensor, found, at)


def _fits(path: str, tensor: Entry, found: Domain, at: At) -> Iterator[Problem]:
    """Whether dtype and dims can hold such values."""
    kind, shape = found.kind, tensor["dims"]
    if found.whole != (tensor["dtype"] in _INTEGERS):
        what = f"kind {kind.value} does not fit the dtype {tensor['dtype']}"
        yield at(f"{path}.kind", what, "whole numbers are int64 or int32")
    if kind is DomainKind.UNIFORM and not found.low < found.high:
        yield at(path, f"no value is from {found.low} to {found.high}", "low is below high")
    if kind is DomainKind.RANGES and (len(shape) != 2 or str(shape[1]) != "2"):
        yield at(path, "ranges are two numbers a row", "write the dims as [R, 2]")
    if kind is DomainKind.ANGLE and not shape:
        yield at(path, "a table of angles has at least one axis", "write its dims")


def pipeline(value: Entry, at: At) -> Iterator[Problem]:
    """What is wrong with a pipeline: stages that its schedule or a window names."""
    stages = value["stages"]
    schedule = value.get("schedule")
    if value["gates"].get("judged_at") == "region":
        yield at("$.gates.judged_at", "a pipeline is judged at itself", "remove it")
    if schedule:
        stage = stages.get(schedule["stage"])
        wanted = _CADENCES[schedule["kind"]]
        if stage is None:
            what = f"there is no stage {schedule['stage']}"
            yield at("$.schedule.stage", what, "there is " + ", ".join(stages))
        elif stage["cadence"] != wanted:
            what = f"the stage {schedule['stage']} runs {stage['cadence']}"
            yield at("$.schedule.stage", what, f"{schedule['kind']} repeats a stage {wanted}")
    for name, window in value.get("windows", {}).items():
        if window["stage"] not in stages:
            what = f"there is no stage {window['stage']}"
            yield at(f"$.windows.{name}.stage", what, "there is " + ", ".join(stages))
