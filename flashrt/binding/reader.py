"""Reads ``bindings/<host>.yaml`` and refuses one that does not fit the catalog."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from flashrt.binding import coverage
from flashrt.binding.model import (
    BindingSpec,
    Coverage,
    Held,
    HostRange,
    PipelineBinding,
    PointAddress,
    RegionBinding,
    Segment,
)
from flashrt.document import schema
from flashrt.document.problem import InputError, Problem
from flashrt.document.yaml_source import Document, load_yaml
from flashrt.spec.model import Kind, Presence, StructureSpec, suggest
from flashrt.spec.registry import load, root_for
from flashrt_runtime.reason import Reason, Refusal


def bindings_root() -> Path:
    """The packaged bindings' folder."""
    return Path(str(resources.files("flashrt.bindings")))


def binding_names(root: Path | None = None) -> list[str]:
    """Names of the bindings in a folder, the packaged one by default."""
    return sorted(p.stem for p in (root or bindings_root()).glob("*.yaml"))


def load_binding(
    name: str | Path, require_pipeline_coverage: bool = False, *, catalogs: Sequence[Path] = ()
) -> BindingSpec:
    """The binding of a host, by its packaged name or from a file.

    A pipeline part, where there is one, is always checked for coverage;
    ``require_pipeline_coverage`` refuses a binding that has none. ``catalogs`` are folders whose
    structures it may name beside the packaged ones. Raises :class:`Refusal` (BINDING) for an
    unknown name, :class:`InputError` with every problem, each with file, line and path, otherwise.
    """
    file = _locate(name)
    document = load_yaml(file)
    schema.require(document.value, "region_binding", document)
    value = document.value
    specs, found = _specs(document, catalogs)
    if isinstance(name, str) and value["name"] != file.stem:
        found.append(_at(document, "$.name", f"the file is named {file.stem}", "they must agree"))
    for region, entry in value["regions"].items():
        if region in specs:
            found += _region(document, f"$.regions.{region}", entry, specs[region])
    pipeline = value.get("pipeline")
    if pipeline and _PIPELINE in specs:
        found += coverage.violations(document, specs[_PIPELINE])
    if require_pipeline_coverage and not pipeline:
        what = "the binding has no pipeline, so its hot path is not covered"
        found.append(_at(document, "$", what, "add a pipeline part"))
    if found:
        raise InputError.of(sorted(found, key=lambda p: (p.line, p.path)))
    return _build(document, specs)


_PIPELINE = "$pipeline"


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


def _specs(
    document: Document, catalogs: Sequence[Path]
) -> tuple[dict[str, StructureSpec], list[Problem]]:
    """Each region's spec, and the pipeline's; what cannot be found is a problem at its line."""
    value = document.value
    named = {n: (f"$.regions.{n}.structure", e, Kind.REGION) for n, e in value["regions"].items()}
    if "pipeline" in value:
        named[_PIPELINE] = ("$.pipeline.structure", value["pipeline"], Kind.PIPELINE)
    specs: dict[str, StructureSpec] = {}
    found: list[Problem] = []
    for key, (path, entry, kind) in named.items():
        try:
            spec = load(entry["structure"], root=root_for(entry["structure"], catalogs))
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


def _region(
    document: Document, path: str, entry: Mapping[str, Any], spec: StructureSpec
) -> Iterator[Problem]:
    try:
        variant = spec.complete(entry["variant"])
    except Refusal as error:
        where = f"{path}.variant.{error.subject}"
        yield _at(document, where, error.what, error.do)
        return
    yield from _names(
        document, f"{path}.weights", entry["weights"], what="slot", spec=spec, variant=variant
    )
    yield from _names(
        document, f"{path}.points", entry["points"], what="point", spec=spec, variant=variant
    )
    for slot, held in entry["weights"].items():
        wanted = spec.slots[slot].layout if slot in spec.slots else held["layout"]
        if held["layout"] != wanted:
            what = f"the slot {slot} has layout {wanted}, not {held['layout']}"
            do = "only the spec's own layout is bound"
            yield _at(document, f"{path}.weights.{slot}.layout", what, do, Reason.LAYOUT)
    indexed = "{i}" in entry["module"]
    for where, template in _templates(path, entry):
        if "{i}" in template and not indexed:
            what = "{i} is used here and not in the region's module"
            yield _at(document, where, what, "the module says which indices there are")
    prefix = entry["module"]
    for role, member in entry["members"].items():
        if member != prefix and not member.startswith(prefix + "."):
            what = f"the member {role} is outside the module {prefix}"
            yield _at(document, f"{path}.members.{role}", what, "name the module that holds it")


def _templates(path: str, entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for role, member in entry["members"].items():
        yield f"{path}.members.{role}", member
    for slot, held in entry["weights"].items():
        yield f"{path}.weights.{slot}.at", held["at"]
    for name, point in entry["points"].items():
        yield f"{path}.points.{name}.module", point["module"]


def _names(
    document: Document,
    path: str,
    given: Mapping[str, Any],
    *,
    what: str,
    spec: StructureSpec,
    variant: Mapping[str, str],
) -> Iterator[Problem]:
    """Names the spec does not have under this variant, and names it needs and does not get."""
    known = spec.slots if what == "slot" else spec.points
    live = {n: t for n, t in known.items() if t.applies(variant)}
    for name in given:
        if name not in live:
            why = "under this variant" if name in known else ""
            said = f"{spec.id} has no {what} {name} {why}".strip()
            yield _at(document, f"{path}.{name}", said, suggest(name, live))
    for name, tensor in live.items():
        if tensor.presence is Presence.REQUIRED and name not in given:
            do = f"say where it {'is held' if what == 'slot' else 'sits'}"
            yield _at(document, path, f"the {what} {name} of {spec.id} is not located", do)


def _build(document: Document, specs: Mapping[str, StructureSpec]) -> BindingSpec:
    value = document.value
    notices = []
    regions = {}
    for name, entry in value["regions"].items():
        notices += _notice(document, f"$.regions.{name}", entry, specs[name])
        regions[name] = RegionBinding(
            name=name,
            spec=specs[name],
            spec_digest=entry["spec_digest"],
            module=entry["module"],
            members=dict(entry["members"]),
            variant=specs[name].complete(entry["variant"]),
            weights={
                slot: Held(h["at"], h["layout"], h.get("tied", ""))
                for slot, h in entry["weights"].items()
            },
            points={
                point: PointAddress(p["module"], p["capture"])
                for point, p in entry["points"].items()
            },
            dtype=entry["boundary"]["dtype"],
        )
    pipeline = None
    if "pipeline" in value:
        notices += _notice(document, "$.pipeline", value["pipeline"], specs[_PIPELINE])
        pipeline = _pipeline(value["pipeline"], specs[_PIPELINE])
    host = value["host"]
    return BindingSpec(
        name=value["name"],
        digest=document.digest,
        host=HostRange(host["family"], host["loader"], dict(host["packages"])),
        regions=regions,
        pipeline=pipeline,
        notices=tuple(notices),
        document=document,
    )


def _pipeline(entry: Mapping[str, Any], spec: StructureSpec) -> PipelineBinding:
    return PipelineBinding(
        spec=spec,
        spec_digest=entry["spec_digest"],
        stages=tuple(entry["stages"]),
        hot_path=tuple(entry["hot_path"]),
        segments=tuple(
            Segment(
                name=name,
                coverage=Coverage(s["classification"]),
                covers=tuple(s["covers"]),
                stages=tuple(s["stages"]),
                regions=tuple(s.get("regions", ())),
                state=s.get("state", ""),
                cadence=s.get("cadence", ""),
                owner=s.get("owner", ""),
            )
            for name, s in entry["segments"].items()
        ),
    )


def _notice(
    document: Document, path: str, entry: Mapping[str, Any], spec: StructureSpec
) -> list[Problem]:
    if entry["spec_digest"] == spec.digest:
        return []
    what = f"it qualified against {entry['spec_digest']}, and {spec.id} is now {spec.digest}"
    do = "qualify again and record the new digest"
    return [_at(document, f"{path}.spec_digest", what, do, Reason.STALE_SPEC)]
