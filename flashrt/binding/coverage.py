"""Pipeline coverage: every hot-path name in exactly one segment, each violation at its line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flashrt.binding.model import Coverage
from flashrt.document.problem import Problem
from flashrt.document.yaml_source import Document
from flashrt.spec.model import Presence, ScheduleKind, StructureSpec, suggest
from flashrt_runtime.reason import Reason

# What each classification must say and must not say.
_NEEDS = {
    Coverage.STRUCTURE: ("regions",),
    Coverage.STATE_REGION: ("state", "cadence"),
    Coverage.HOST_STAGE: ("owner",),
    Coverage.CONTROL: ("owner",),
}
_MAY = {Coverage.HOST_STAGE: ("gap",)}
_FIELDS = ("regions", "state", "cadence", "owner", "gap")


def violations(
    document: Document, spec: StructureSpec, regions: Iterable[str]
) -> Iterator[Problem]:
    """Every way in which the document's pipeline does not cover its hot path.

    ``regions`` are the names of the binding's regions.
    """
    pipeline: Mapping[str, Any] = document.value["pipeline"]

    def at(path: str, what: str, do: str = "") -> Problem:
        return Problem(document.file, document.line(path), path, what, do, Reason.BINDING)

    yield from _stages(pipeline, spec, at)
    yield from _entries(pipeline, spec, at)
    hot: dict[str, int] = {}
    for i, name in enumerate(pipeline["hot_path"]):
        if name in hot:
            yield at(f"$.pipeline.hot_path[{i}]", f"{name} is named twice", "name it once")
        hot.setdefault(name, i)
    for name, segment in pipeline["segments"].items():
        yield from _segment(f"$.pipeline.segments.{name}", segment, pipeline, at)
    yield from _owners(pipeline, hot, at)
    yield from _regions(pipeline, list(regions), at)


def _owners(pipeline: Mapping[str, Any], hot: Mapping[str, int], at: Any) -> Iterator[Problem]:
    owner: dict[str, str] = {}
    for name, segment in pipeline["segments"].items():
        for i, covered in enumerate(segment["covers"]):
            where = f"$.pipeline.segments.{name}.covers[{i}]"
            if covered not in hot:
                yield at(where, f"{covered} is not on the hot path", suggest(covered, hot))
            elif covered in owner:
                yield at(where, f"{covered} is owned by {owner[covered]} too", "name one owner")
            else:
                owner[covered] = name
    kinds = ", ".join(c.value for c in Coverage)
    for name, i in hot.items():
        if name not in owner:
            what = f"{name} is in no segment"
            yield at(f"$.pipeline.hot_path[{i}]", what, f"classify it as one of {kinds}")


def _regions(pipeline: Mapping[str, Any], regions: list[str], at: Any) -> Iterator[Problem]:
    used: set[str] = set()
    for name, segment in pipeline["segments"].items():
        for i, region in enumerate(segment.get("regions", ())):
            used.add(region)
            if region not in regions:
                what = f"there is no region {region}"
                where = f"$.pipeline.segments.{name}.regions[{i}]"
                yield at(where, what, suggest(region, regions))
    for name in regions:
        if name not in used:
            what = f"the region {name} owns nothing on the hot path"
            yield at(f"$.regions.{name}", what, "name it in a structure segment")


def _stages(pipeline: Mapping[str, Any], spec: StructureSpec, at: Any) -> Iterator[Problem]:
    for i, stage in enumerate(pipeline["stages"]):
        if stage not in spec.stages:
            what = f"{spec.id} has no stage {stage}"
            yield at(f"$.pipeline.stages[{i}]", what, suggest(stage, spec.stages))
    for name, stage in spec.stages.items():
        if stage.presence is Presence.REQUIRED and name not in pipeline["stages"]:
            yield at("$.pipeline.stages", f"{spec.id} requires the stage {name}", f"add {name}")
    running = {s for segment in pipeline["segments"].values() for s in segment["stages"]}
    for i, stage in enumerate(pipeline["stages"]):
        if stage not in running:
            yield at(f"$.pipeline.stages[{i}]", f"no segment runs in {stage}", "add one")


def _entries(pipeline: Mapping[str, Any], spec: StructureSpec, at: Any) -> Iterator[Problem]:
    """Where the host takes the spec's windows and the number of its steps."""
    given = pipeline.get("windows", {})
    for name in given:
        if name not in spec.windows:
            what = f"{spec.id} has no window {name}"
            yield at(f"$.pipeline.windows.{name}", what, suggest(name, spec.windows))
    for name, window in spec.windows.items():
        if window.presence is Presence.REQUIRED and name not in given:
            what = f"{spec.id} requires the window {name}"
            yield at("$.pipeline.windows", what, f"say where the host takes {name}")
    fixed = spec.schedule is not None and spec.schedule.kind is ScheduleKind.FIXED_STEPS
    if fixed and "steps" not in pipeline:
        what = "where the number of steps comes from is not said"
        yield at("$.pipeline", what, "add steps: {from, meaning}")
    if not fixed and "steps" in pipeline:
        what = f"{spec.id} has no schedule of fixed steps"
        yield at("$.pipeline.steps", what, "remove it")


def _segment(
    path: str, segment: Mapping[str, Any], pipeline: Mapping[str, Any], at: Any
) -> Iterator[Problem]:
    kinds = {c.value: c for c in Coverage}
    kind = kinds.get(segment["classification"])
    if kind is None:
        what = f"{segment['classification']!r} is not a classification"
        yield at(f"{path}.classification", what, "use one of " + ", ".join(kinds))
        return
    for field in _FIELDS:
        if field in _NEEDS[kind] and field not in segment:
            yield at(path, f"a {kind.value} segment must say its {field}", f"add {field}")
        if field not in (*_NEEDS[kind], *_MAY.get(kind, ())) and field in segment:
            yield at(f"{path}.{field}", f"a {kind.value} segment has no {field}", "remove it")
    for i, stage in enumerate(segment["stages"]):
        if stage not in pipeline["stages"]:
            what = f"the pipeline does not bind the stage {stage}"
            yield at(f"{path}.stages[{i}]", what, suggest(stage, pipeline["stages"]))
