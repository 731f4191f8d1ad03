"""A binding's records from a document that satisfies its schema and its specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flashrt.binding.address import Address
from flashrt.binding.model import (
    Adapter,
    BindingSpec,
    Coverage,
    Entry,
    Held,
    HostRange,
    PipelineBinding,
    PointAddress,
    Provisional,
    RegionBinding,
    Segment,
)
from flashrt.document.problem import Problem
from flashrt.document.yaml_source import Document
from flashrt.spec.model import StructureSpec
from flashrt_runtime.reason import Reason

# The key of the pipeline's spec beside the regions' names; no region can be named so.
PIPELINE = "$pipeline"


def build(document: Document, specs: Mapping[str, StructureSpec]) -> BindingSpec:
    """The binding; ``specs`` are the regions' and, under :data:`PIPELINE`, the pipeline's."""
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
            adapter=Adapter(entry.get("adapter", "none")),
            indices=_indices(entry),
            inputs=_addresses(entry, "inputs"),
            outputs=_addresses(entry, "outputs"),
            unseen=dict(entry["boundary"].get("unseen", {})),
        )
    pipeline = None
    if "pipeline" in value:
        notices += _notice(document, "$.pipeline", value["pipeline"], specs[PIPELINE])
        pipeline = _pipeline(value["pipeline"], specs[PIPELINE])
    host = value["host"]
    why = value.get("provisional")
    return BindingSpec(
        name=value["name"],
        digest=document.digest,
        host=HostRange(host["family"], host["loader"], dict(host["packages"])),
        regions=regions,
        pipeline=pipeline,
        notices=tuple(notices),
        document=document,
        provisional=Provisional(why["reason"], tuple(why["sources"])) if why else None,
    )


def _addresses(entry: Mapping[str, Any], side: str) -> dict[str, Address]:
    held = entry["boundary"].get(side, {})
    return {name: Address.of(address) for name, address in held.items()}


def _indices(entry: Mapping[str, Any]) -> tuple[int, int] | None:
    said = entry.get("indices")
    return (said["from"], said["step"]) if said else None


def _pipeline(entry: Mapping[str, Any], spec: StructureSpec) -> PipelineBinding:
    steps = entry.get("steps")
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
                gap=s.get("gap", ""),
            )
            for name, s in entry["segments"].items()
        ),
        windows={n: Entry(w["at"], w["meaning"]) for n, w in entry.get("windows", {}).items()},
        steps=Entry(steps["from"], steps["meaning"]) if steps else None,
    )


def _notice(
    document: Document, path: str, entry: Mapping[str, Any], spec: StructureSpec
) -> list[Problem]:
    if entry["spec_digest"] == spec.digest:
        return []
    what = f"it qualified against {entry['spec_digest']}, and {spec.id} is now {spec.digest}"
    do = "qualify again and record the new digest"
    where = f"{path}.spec_digest"
    return [Problem(document.file, document.line(where), where, what, do, Reason.STALE_SPEC)]
