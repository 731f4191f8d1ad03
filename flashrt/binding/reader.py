"""Reads ``bindings/<host>.yaml`` and refuses one that does not fit the catalog."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from flashrt.binding import coverage, region
from flashrt.binding.build import PIPELINE, build
from flashrt.binding.model import BindingSpec
from flashrt.binding.shelf import Shelf
from flashrt.document import schema
from flashrt.document.problem import InputError, Problem
from flashrt.document.yaml_source import Document, load_yaml
from flashrt.spec.model import Kind, StructureSpec, suggest
from flashrt_runtime.reason import Reason, Refusal

_PART = re.compile(r"\$\.(regions\.(?P<region>[^.\[]+)|(?P<other>[a-z_]+))")


def bindings_root() -> Path:
    """The packaged bindings' folder."""
    return Path(str(resources.files("flashrt.bindings")))


def binding_names(root: Path | None = None) -> list[str]:
    """Names of the bindings in a folder, the packaged one by default."""
    return sorted(p.stem for p in (root or bindings_root()).glob("*.yaml"))


def load_binding(
    name: str | Path,
    require_pipeline_coverage: bool = False,
    *,
    catalogs: Sequence[Path] = (),
) -> BindingSpec:
    """The binding of a host, by its packaged name or from a file.

    A pipeline part, where there is one, is always checked for coverage;
    ``require_pipeline_coverage`` refuses a binding that has none. ``catalogs`` are folders whose
    structures it may name beside the packaged ones. Raises :class:`Refusal` (BINDING) for an
    unknown name, :class:`InputError` with every problem, each with file, line and path, otherwise.
    """
    file = _locate(name)
    found: list[Problem] = []
    document = load_yaml(file)
    stem = document.value.get("name") if isinstance(document.value, dict) else None
    if isinstance(name, str) and stem != file.stem:
        found.append(_at(document, "$.name", f"the file is named {file.stem}", "they must agree"))
    if require_pipeline_coverage and not (stem and "pipeline" in document.value):
        what = "the binding has no pipeline, so its hot path is not covered"
        found.append(_at(document, "$", what, "add a pipeline part"))
    return read_binding(document, Shelf(catalogs), found)


def read_binding(document: Document, shelf: Shelf, found: Iterable[Problem] = ()) -> BindingSpec:
    """The binding that a document is; ``found`` are problems that the caller has seen already.

    A part that breaks the schema does not hide what is wrong with the others. Raises
    :class:`InputError` with every problem, in the order of lines.
    """
    broken = schema.problems(document.value, "region_binding", document)
    sound = replace(document, value=_sound(document.value, broken))
    specs, missing = _specs(sound, shelf)
    problems = [*found, *broken, *missing]
    for name, entry in sound.value["regions"].items():
        if name in specs:
            problems += region.violations(sound, f"$.regions.{name}", entry, specs[name])
    if PIPELINE in specs:
        named = document.value["regions"]
        problems += coverage.violations(sound, specs[PIPELINE], named)
    if problems:
        raise InputError.of(sorted(problems, key=lambda p: (p.line, p.path)))
    return build(document, specs)


def _sound(value: Any, broken: Iterable[Problem]) -> dict[str, Any]:
    """The parts that satisfy the schema."""
    parts = [_PART.match(p.path) for p in broken]
    if not isinstance(value, dict) or not isinstance(value.get("regions"), dict) or None in parts:
        return {"regions": {}}
    hurt = {p["region"] or p["other"] for p in parts if p}
    if "regions" in hurt:
        return {"regions": {}}
    sound = {key: part for key, part in value.items() if key not in hurt}
    return sound | {"regions": {n: e for n, e in value["regions"].items() if n not in hurt}}


def _locate(name: str | Path) -> Path:
    if isinstance(name, Path) or name.endswith((".yaml", ".yml")) or os.sep in name:
        return Path(name)
    if name not in binding_names():
        raise Refusal(
            Reason.BINDING,
            "there is no binding of this name",
            subject=name,
            do=suggest(name, binding_names()),
        )
    return bindings_root() / f"{name}.yaml"


def _at(
    document: Document, path: str, what: str, do: str, reason: Reason = Reason.BINDING
) -> Problem:
    return Problem(document.file, document.line(path), path, what, do, reason)


def _specs(document: Document, shelf: Shelf) -> tuple[dict[str, StructureSpec], list[Problem]]:
    """Each region's spec, and the pipeline's; what cannot be found is a problem at its line."""
    value = document.value
    named: dict[str, tuple[str, Mapping[str, Any], Kind]] = {
        n: (f"$.regions.{n}.structure", e, Kind.REGION) for n, e in value["regions"].items()
    }
    if "pipeline" in value:
        named[PIPELINE] = ("$.pipeline.structure", value["pipeline"], Kind.PIPELINE)
    specs: dict[str, StructureSpec] = {}
    found: list[Problem] = []
    for key, (path, entry, kind) in named.items():
        try:
            spec = shelf.get(entry["structure"])
        except Refusal as error:
            what = f"{error.subject}: {error.what}"
            found.append(_at(document, path, what, error.do, error.reason))
            continue
        if spec.kind is not kind:
            what = f"{spec.id} is a {spec.kind.value}, a {kind.value} is needed here"
            found.append(_at(document, path, what, "name another structure"))
            continue
        specs[key] = spec
    return specs, found
