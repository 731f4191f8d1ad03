"""Mermaid diagrams of structures: a region's boundary, slots and points; a pipeline's stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from flashrt.report import safe_text

Entry = Mapping[str, Any]

_REGION_STYLES = (
    "classDef slot fill:#8881,stroke:#888",
    "classDef point fill:#fff0,stroke:#888,stroke-dasharray:2 3",
    "classDef maybe stroke-dasharray:6 4",
)
# In a quoted Mermaid label only these are read as anything but themselves.
_ENTITIES = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;"}


def label(*lines: str) -> str:
    """A quoted Mermaid label; every line is text and nothing else."""
    shown = ("".join(_ENTITIES.get(c, c) for c in safe_text.visible(line)) for line in lines)
    return '"' + "<br/>".join(line for line in shown if line) + '"'


def shape(entry: Entry) -> str:
    """``[M, D]``, with ``× P`` where the tensor is repeated; empty where the spec says none."""
    if "dims" not in entry:
        return ""
    text = "[" + ", ".join(str(dim) for dim in entry["dims"]) + "]"
    return f"{text} × {entry['repeat']}" if "repeat" in entry else text


def exists(entry: Entry) -> str:
    """Where a tensor or axis exists: ``always``, ``optional``, ``norm: rms_direct``."""
    said = [f"{axis}: {' or '.join(values)}" for axis, values in entry.get("when", {}).items()]
    return "; ".join([*said, *(["optional"] if entry.get("optional") else [])]) or "always"


def _nodes(prefix: str, entries: Mapping[str, Entry], kind: str) -> Iterable[str]:
    """One node for each tensor; ``kind`` is the pair of brackets that draws it."""
    left, right = kind.split(" ")
    for name, entry in entries.items():
        yield f"{prefix}_{name}{left}{label(name, shape(entry))}{right}"


def _group(title: str, nodes: Iterable[str]) -> list[str]:
    inside = [f"    {node}" for node in nodes]
    identity = title.replace(" ", "_")
    return [f"  subgraph g_{identity}[{label(title)}]", *inside, "  end"] if inside else []


def region(spec: Entry) -> str:
    """Inputs and slots into the region, outputs out of it, points observed inside.

    Dashed: there only under some variants, or optional. A state goes back in by a dotted arrow.
    """
    inputs, outputs = spec["boundary"]["inputs"], spec["boundary"]["outputs"]
    slots, points = spec["weights"], spec["calibration"]["points"]
    captures = spec.get("captures", {})
    lines = ["flowchart LR", f"  region[[{label(spec['name'])}]]"]
    lines += _group("inputs", _nodes("in", inputs, "[ ]"))
    lines += _group("slots", _nodes("w", slots, "[( )]"))
    lines += _group("outputs", _nodes("out", outputs, "[ ]"))
    lines += _group("points", _nodes("at", points, "([ ])"))
    lines += _group("captures", _nodes("held", captures, "([ ])"))
    lines += [f"  in_{name} --> region" for name in inputs]
    lines += ["  g_slots --- region"] if slots else []
    lines += [f"  region --> out_{name}" for name in outputs]
    lines += ["  region -.- g_points"] if points else []
    lines += ["  region -.- g_captures"] if captures else []
    for name, entry in inputs.items():
        if "carries" in entry:
            lines.append(f"  out_{entry['carries']} -. next call .-> in_{name}")
    lines += [f"  {style}" for style in _REGION_STYLES]
    lines += _classes("slot", (f"w_{name}" for name in slots))
    observed = [f"at_{name}" for name in points] + [f"held_{name}" for name in captures]
    lines += _classes("point", observed)
    groups = (("in", inputs), ("w", slots), ("out", outputs), ("at", points), ("held", captures))
    some = [f"{p}_{n}" for p, group in groups for n, e in group.items() if exists(e) != "always"]
    return "\n".join(lines + _classes("maybe", some))


def _classes(name: str, nodes: Iterable[str]) -> list[str]:
    listed = ",".join(nodes)
    return [f"  class {listed} {name}"] if listed else []


def pipeline(spec: Entry) -> str:
    """The stages in order with their cadence, the repeated one, and the windows into them."""
    stages, windows = spec["stages"], spec.get("windows", {})
    lines = ["flowchart LR"]
    lines += [f"  s_{n}[{label(n, s['cadence'])}]" for n, s in stages.items()]
    lines += [f"  s_{a} --> s_{b}" for a, b in pairwise(stages)]
    if "schedule" in spec:
        again = spec["schedule"]
        lines.append(f"  s_{again['stage']} -->|{label(again['kind'])}| s_{again['stage']}")
    for name, window in windows.items():
        lines.append(f"  win_{name}>{label(name, 'window')}] --> s_{window['stage']}")
    lines.append(f"  {_REGION_STYLES[-1]}")
    optional = [f"s_{n}" for n, s in stages.items() if not s["required"]]
    optional += [f"win_{n}" for n, w in windows.items() if not w["required"]]
    return "\n".join(lines + _classes("maybe", optional))


def diagram(spec: Entry) -> str:
    """The Mermaid text of one structure, given as its file's value."""
    return pipeline(spec) if spec["kind"] == "pipeline" else region(spec)
