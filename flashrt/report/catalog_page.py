"""The catalog as one Markdown page, made from the files alone: specs, lock, impls and bindings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from flashrt.document import schema
from flashrt.document.yaml_source import load_yaml
from flashrt.report import safe_text
from flashrt.report.catalog_diagram import diagram, exists, shape
from flashrt.report.table import Table, markdown
from flashrt.spec.lock import Lock, read_lock
from flashrt.spec.registry import catalog_root, spec_files
from flashrt_runtime.impl_loader import Manifest, manifests

Entry = Mapping[str, Any]

_INTRODUCTION = """\
# Catalog

Every structure, generated from `catalog/`, `impls/` and `bindings/` by `python
tools/catalog_page.py`: edit those and run it again. A *region* is a part of a model with a boundary
of named tensors, weight slots and calibration points; a *pipeline* is a whole run in stages. A
structure has a plain-torch reference (a pipeline's is the unmodified host) and a gate. `@binding`
as a dtype means that the host decides.

In the diagrams, boxes are boundary tensors, cylinders weight slots, rounded boxes calibration
points or captures. What is dashed exists only under some variants, or is optional.
"""


@dataclass(frozen=True)
class Use:
    """One binding's use of a structure: which regions, or ``pipeline``, and whether provisional."""

    binding: str
    places: tuple[str, ...]
    provisional: bool


@dataclass(frozen=True)
class Shelf:
    """What stands beside the specs: the lock, the impls, and the uses by ``name@version``."""

    lock: Lock | None
    impls: Sequence[Manifest]
    uses: Mapping[str, Sequence[Use]]

    def status(self, spec: Entry) -> str:
        """``active``, ``coexisting``, ``retired``, or that the lock does not list the version."""
        entry = self.lock.find(spec["name"], spec["version"]) if self.lock else None
        return entry.status.value if entry else "not in the lock"


def bindings_root() -> Path:
    """The packaged bindings' folder."""
    return Path(str(resources.files("flashrt.bindings")))


def uses(folder: Path) -> dict[str, list[Use]]:
    """Which bindings of a folder use which structure.

    Raises :class:`flashrt.document.problem.InputError` for a file that is no binding.
    """
    found: dict[str, list[Use]] = {}
    for file in sorted(folder.glob("*.yaml")):
        document = load_yaml(file)
        schema.require(document.value, "region_binding", document)
        value = document.value
        places: dict[str, list[str]] = {}
        for name, region in value.get("regions", {}).items():
            places.setdefault(region["structure"], []).append(name)
        if "pipeline" in value:
            places.setdefault(value["pipeline"]["structure"], []).append("pipeline")
        for structure, names in places.items():
            use = Use(value["name"], tuple(names), "provisional" in value)
            found.setdefault(structure, []).append(use)
    return found


def page(root: Path | None = None, bindings: Path | None = None, impls: Path | None = None) -> str:
    """The page's Markdown. The folders are the packaged ones by default.

    Raises :class:`flashrt.document.problem.InputError` for a file that cannot be read.
    """
    folder = root or catalog_root()
    documents = [load_yaml(file) for file in spec_files(folder)]
    for document in documents:
        schema.require(document.value, "structure", document)
    specs = sorted(
        (document.value for document in documents),
        key=lambda value: (value["kind"] == "pipeline", value["name"], -value["version"]),
    )
    shelf = Shelf(read_lock(folder), manifests(impls), uses(bindings or bindings_root()))
    return "\n".join([_INTRODUCTION, _index(specs, shelf), *(_section(s, shelf) for s in specs)])


def _title(spec: Entry) -> str:
    return f"{spec['name']}@{spec['version']}"


def _index(specs: Iterable[Entry], shelf: Shelf) -> str:
    lines = [
        "| structure | kind | status | impls | bindings |",
        "| --- | --- | --- | ---: | ---: |",
    ]
    for spec in specs:
        title = _title(spec)
        served = [impl for impl in shelf.impls if impl.structure == title]
        bound = shelf.uses.get(title, ())
        # GitHub's anchor of a heading drops everything but letters, digits, _ and -.
        anchor = title.replace("@", "")
        cells = [f"[{title}](#{anchor})", spec["kind"], shelf.status(spec)]
        lines.append("| " + " | ".join([*cells, str(len(served)), str(len(bound))]) + " |")
    return "\n".join(lines) + "\n"


def _tensors(spec: Entry) -> Iterable[Sequence[str]]:
    boundary = spec["boundary"]
    for direction, entries in (("in", boundary["inputs"]), ("out", boundary["outputs"])):
        for name, e in entries.items():
            notes = [e["role"]] if "role" in e else []
            notes += [f"from {e['carries']}"] if "carries" in e else []
            notes += [_domain(e["domain"])] if "domain" in e else []
            said = (e["dtype"], ", ".join(notes), exists(e), e.get("meaning", ""))
            yield name, direction, shape(e), *said


def _domain(domain: Entry) -> str:
    rest = " ".join(f"{key} {value}" for key, value in domain.items() if key != "kind")
    return f"{domain['kind']} ({rest})" if rest else str(domain["kind"])


def _values(axis: Entry) -> str:
    if "values" in axis:
        return ", ".join(axis["values"])
    return f"a number, {axis['number']}" if "number" in axis else f"the size of {axis['dim']}"


def _tables(spec: Entry) -> Iterable[Table]:
    if spec["kind"] == "pipeline":
        stages = [
            (n, s["cadence"], "yes" if s["required"] else "no", s.get("meaning", ""))
            for n, s in spec["stages"].items()
        ]
        yield Table(("stage", "cadence", "required", "meaning"), stages)
        windows = [
            (n, w["stage"], "yes" if w["required"] else "no", w.get("meaning", ""))
            for n, w in spec.get("windows", {}).items()
        ]
        yield Table(("window", "into stage", "required", "meaning"), windows)
        return
    yield Table(("dim", "counts"), list(spec["dims"].items()))
    columns = ("tensor", "direction", "shape", "dtype", "role and domain", "exists", "meaning")
    yield Table(columns, list(_tensors(spec)))
    slots = [
        (n, shape(e), e["layout"], exists(e), e.get("meaning", ""))
        for n, e in spec["weights"].items()
    ]
    yield Table(("slot", "shape", "layout", "exists", "meaning"), slots)
    axes = [(n, _values(a), exists(a), a.get("meaning", "")) for n, a in spec["variants"].items()]
    yield Table(("variant axis", "values", "exists", "meaning"), axes)
    points = [
        (n, shape(p), exists(p), p.get("meaning", ""))
        for n, p in spec["calibration"]["points"].items()
    ]
    yield Table(("point", "shape", "exists", "meaning"), points)
    captures = [
        (n, c["kind"], shape(c), exists(c), c["meaning"])
        for n, c in spec.get("captures", {}).items()
    ]
    yield Table(("capture", "kind", "shape", "exists", "meaning"), captures)


def _facts(spec: Entry, shelf: Shelf) -> Iterable[str]:
    entry = shelf.lock.find(spec["name"], spec["version"]) if shelf.lock else None
    yield f"Kind {spec['kind']}, version {spec['version']}, {shelf.status(spec)}."
    if entry and entry.migration:
        note = entry.migration
        yield f"Retired in {note.since}: {note.why}. Use {note.instead}."
    gates = spec["gates"]
    bands = ", ".join(f"{band} from {floor}" for band, floor in gates["bands"].items())
    where = "at the pipeline's output" if gates.get("judged_at") == "pipeline" else "at its outputs"
    if spec["kind"] == "pipeline":
        where = "against the unmodified host"
    yield f"Gate: {gates['metric']} {where}, {bands}; a win exceeds {gates['margin']}."
    if "constraints" in spec:
        yield "Constraints: " + "; ".join(spec["constraints"]) + "."
    if "composes" in spec:
        yield "Composed of " + ", ".join(spec["composes"]) + "."
    if "schedule" in spec:
        again = spec["schedule"]
        meaning = f": {again['meaning']}" if "meaning" in again else ""
        yield f"Schedule: {again['kind']} on {again['stage']}{meaning}."


def _section(spec: Entry, shelf: Shelf) -> str:
    title = _title(spec)
    parts = [f"## {title}", safe_text.markdown(" ".join(spec["summary"].split()))]
    parts.append(f"```mermaid\n{diagram(spec)}\n```")
    parts.append("\n".join(f"- {safe_text.markdown(fact)}" for fact in _facts(spec, shelf)))
    parts += [markdown(table).rstrip() for table in _tables(spec) if table.rows]
    impls = [
        (m.backend, m.device, f.name, ", ".join(f.schemes), ", ".join(f.input_dtype), f.band())
        for m in shelf.impls
        if m.structure == title
        for f in m.forms
    ]
    if impls:
        columns = ("impl", "device", "form", "schemes", "input", "work band")
        parts.append(markdown(Table(columns, impls)).rstrip())
    elif spec["kind"] == "region":
        parts.append("No impl: it stays in the host.")
    bound = [
        (u.binding, ", ".join(u.places), "yes" if u.provisional else "no")
        for u in shelf.uses.get(title, ())
    ]
    if bound:
        parts.append(markdown(Table(("binding", "regions", "provisional"), bound)).rstrip())
    else:
        parts.append("No binding uses it.")
    return "\n\n".join(parts) + "\n"
