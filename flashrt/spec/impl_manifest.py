"""What an impl's manifest claims, held against the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flashrt.document.problem import Problem
from flashrt.document.yaml_source import Document
from flashrt.spec.model import Kind, StructureSpec, suggest
from flashrt.spec.registry import load, root_for
from flashrt_runtime.reason import Reason, Refusal


def misfits(document: Document, file: Path, catalogs: Sequence[Path] = ()) -> Iterator[Problem]:
    """Every claim that the catalog contradicts; the document satisfies its schema already."""
    value = document.value

    def at(path: str, what: str, do: str = "", reason: Reason = Reason.SCHEMA) -> Problem:
        return Problem(document.file, document.line(path), path, what, do, reason)

    if file.stem != value["backend"]:
        yield at("$.backend", f"the file is named {file.stem}", "file and backend must agree")
    if not file.with_suffix(".py").is_file():
        yield at("$", f"{file.stem}.py is not beside the manifest", "write its bind function")
    if value["device"] == "cpu" and value["archs"]:
        yield at("$.archs", "a cpu implementation declares no archs", "leave the list empty")
    yield from _forms(value["forms"], at)
    try:
        spec = load(value["structure"], root=root_for(value["structure"], catalogs))
    except Refusal as error:
        yield at("$.structure", f"{error.subject}: {error.what}", error.do, error.reason)
        return
    if spec.kind is not Kind.REGION:
        yield at("$.structure", f"{spec.id} is a {spec.kind.value}", "name a region")
        return
    if file.resolve().parent.name != spec.name:
        what = f"the folder is named {file.resolve().parent.name}"
        yield at("$.structure", what, "folder and structure must agree")
    for i, form in enumerate(value["forms"]):
        yield from _against(f"$.forms[{i}]", form, spec, at)


def _forms(forms: list[Mapping[str, Any]], at: Any) -> Iterator[Problem]:
    seen: set[str] = set()
    for i, form in enumerate(forms):
        if form["name"] in seen:
            yield at(f"$.forms[{i}].name", f"two forms are named {form['name']}", "rename one")
        seen.add(form["name"])
        low, high = form["rows"]
        if high is not None and not low <= high:
            yield at(f"$.forms[{i}].rows", f"{low} to {high} holds no row", "fewest first")


def _against(path: str, form: Mapping[str, Any], spec: StructureSpec, at: Any) -> Iterator[Problem]:
    for name in form["points"]:
        if name not in spec.points:
            what = f"{spec.id} has no point {name}"
            yield at(f"{path}.points.{name}", what, suggest(name, spec.points))
    for name, values in form["variants"].items():
        axis = spec.variants.get(name)
        if axis is None:
            what = f"{spec.id} has no variant axis {name}"
            yield at(f"{path}.variants.{name}", what, suggest(name, spec.variants))
            continue
        for i, value in enumerate(values):
            if not axis.accepts(value):
                what = f"{name} has no value {value}"
                yield at(f"{path}.variants.{name}[{i}]", what, suggest(value, axis.values))
