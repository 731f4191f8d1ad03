"""Reads one ``structure.yaml`` and refuses one that does not mean anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flashrt.document import schema
from flashrt.document.problem import InputError, Problem
from flashrt.document.yaml_source import Document, load_yaml
from flashrt.spec import dims, written
from flashrt.spec.domain import domain
from flashrt.spec.meaning import boundary, pipeline
from flashrt.spec.model import (
    Axis,
    Capture,
    CaptureKind,
    Gates,
    JudgedAt,
    Kind,
    Presence,
    Schedule,
    ScheduleKind,
    Stage,
    StructureSpec,
    TensorSpec,
    Window,
)
from flashrt_runtime.reason import Refusal

HOST_REFERENCE = "@host"
FILE = "structure.yaml"


def read(path: Path) -> StructureSpec:
    """The spec in a file, or in a folder's ``structure.yaml``.

    Raises :class:`InputError` with every problem found: schema, dims, names that nothing declares,
    a file in a folder of another name, a reference that is not there.
    """
    file = path / FILE if path.is_dir() else path
    document = load_yaml(file)
    schema.require(document.value, "structure", document)
    found = list(_meaning(document, file))
    if found:
        raise InputError.of(found)
    return _build(document, file)


def _meaning(document: Document, file: Path) -> Iterator[Problem]:
    """What the schema cannot say."""
    value = document.value

    def at(path: str, what: str, do: str = "") -> Problem:
        return Problem(document.file, document.line(path), path, what, do)

    yield from _place(value, file, at)
    declared = value.get("dims", {})
    used: set[str] = set()
    for place in written.places(value):
        try:
            found = place.read()
        except Refusal as error:
            yield at(place.path, error.what, error.do)
            continue
        said = found.names() if isinstance(found, dims.Constraint) else dims.names(found)
        if place.kind != "bound":  # a bound alone gives no tensor the dim
            used |= said
        for unknown in sorted(said - set(declared)):
            yield at(place.path, f"the dim {unknown} is not declared", "add it to $.dims")
        never = written.unfit(found)
        if never:
            yield at(place.path, never, "write what some sizes of its names make true")
    for path, tensor in written.tensors(value):
        large = written.too_large(tensor)
        if large:
            do = f"no tensor has more than {written.MAX_ELEMENTS}"
            yield at(f"{path}.dims", large, do)
        yield from _conditions(path, tensor, value, at)
    for name, axis in value.get("variants", {}).items():
        yield from _conditions(f"$.variants.{name}", axis, value, at)
    for name in sorted(set(declared) - used):
        yield at(f"$.dims.{name}", f"no tensor has the dim {name}", "remove it or use it")
    yield from boundary(value, at) if value["kind"] == Kind.REGION.value else pipeline(value, at)
    bands = value["gates"]["bands"]
    if not bands["pass"] >= bands["warn"]:
        yield at("$.gates.bands", "pass is below warn", "pass is the higher floor")


def _place(value: Mapping[str, Any], file: Path, at: Any) -> Iterator[Problem]:
    folder = file.resolve().parent
    if re.fullmatch(r"v[0-9]+", folder.name):
        if folder.name != f"v{value['version']}":
            yield at("$.version", f"the folder says {folder.name}", "folder and version must agree")
        folder = folder.parent
    if folder.name != value["name"]:
        yield at("$.name", f"the folder is named {folder.name}", "folder and name must agree")
    if value["reference"] != HOST_REFERENCE and not (file.parent / value["reference"]).is_file():
        yield at(
            "$.reference",
            f"{value['reference']} is not beside the spec",
            "a structure without a reference cannot gate anything: write one",
        )


def _conditions(
    path: str, entry: Mapping[str, Any], value: Mapping[str, Any], at: Any
) -> Iterator[Problem]:
    for axis, allowed in entry.get("when", {}).items():
        known = value.get("variants", {}).get(axis)
        if known is None:
            yield at(f"{path}.when.{axis}", f"there is no variant axis {axis}")
            continue
        for other in sorted(set(allowed) - set(known.get("values", ()))):
            yield at(f"{path}.when.{axis}", f"the axis {axis} has no value {other}")


def _when(entry: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {axis: tuple(values) for axis, values in entry.get("when", {}).items()}


def _tensors(entries: Mapping[str, Any]) -> dict[str, TensorSpec]:
    return {
        name: TensorSpec(
            name=name,
            dims=tuple(dims.parse(text) for text in entry["dims"]),
            dtype=entry.get("dtype", "@binding"),
            layout=entry.get("layout", ""),
            role=entry.get("role", "value"),
            presence=_presence(not entry.get("optional")),
            when=_when(entry),
            repeat=entry.get("repeat", ""),
            carries=entry.get("carries", ""),
            domain=domain(entry.get("domain")),
        )
        for name, entry in entries.items()
    }


def _captures(entries: Mapping[str, Any]) -> dict[str, Capture]:
    return {
        name: Capture(
            name=name,
            kind=CaptureKind(entry["kind"]),
            dims=tuple(dims.parse(text) for text in entry.get("dims", ())),
            dtype=entry.get("dtype", "@binding"),
            when=_when(entry),
        )
        for name, entry in entries.items()
    }


def _presence(required: bool) -> Presence:
    return Presence.REQUIRED if required else Presence.OPTIONAL


def _build(document: Document, file: Path) -> StructureSpec:
    value = document.value
    boundary = value.get("boundary", {})
    gates = value["gates"]
    named = value["reference"]
    schedule = value.get("schedule")
    return StructureSpec(
        name=value["name"],
        version=value["version"],
        digest=document.digest,
        kind=Kind(value["kind"]),
        summary=value["summary"],
        gates=Gates(
            metric=gates["metric"],
            bands=dict(gates["bands"]),
            margin=gates["margin"],
            report=tuple(gates.get("report", ())),
            judged_at=JudgedAt(gates.get("judged_at", "region")),
        ),
        path=file,
        reference=None if named == HOST_REFERENCE else file.parent / named,
        dims=dict(value.get("dims", {})),
        rows=boundary.get("rows", ""),
        inputs=_tensors(boundary.get("inputs", {})),
        outputs=_tensors(boundary.get("outputs", {})),
        slots=_tensors(value.get("weights", {})),
        variants={
            name: Axis(
                name=name,
                values=tuple(a.get("values", ())),
                default=a.get("number", ""),
                dim=a.get("dim", ""),
                when=_when(a),
            )
            for name, a in value.get("variants", {}).items()
        },
        points=_tensors(value.get("calibration", {}).get("points", {})),
        stages={
            name: Stage(name, _presence(s["required"]), s["cadence"])
            for name, s in value.get("stages", {}).items()
        },
        constraints=tuple(dims.constraint(text) for text in value.get("constraints", ())),
        captures=_captures(value.get("captures", {})),
        composes=tuple(value.get("composes", ())),
        schedule=Schedule(ScheduleKind(schedule["kind"]), schedule["stage"]) if schedule else None,
        windows={
            name: Window(name, w["stage"], _presence(w["required"]))
            for name, w in value.get("windows", {}).items()
        },
    )
