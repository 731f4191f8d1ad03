"""Holds an ontology against the code: every declared name is there, owned once and kept apart."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator

from flashrt.document.problem import Problem
from flashrt.lab.ontology.code import Code, packaged_code, schema_name
from flashrt.lab.ontology.control import controls
from flashrt.lab.ontology.model import Exclusion, Limit, Ontology, Owner
from flashrt.lab.ontology.walk import changeable, reach, shown
from flashrt.lab.records.codec import fields_of
from flashrt_runtime.reason import Reason

# Path, what is wrong, what to do, and why it is refused.
Found = Iterator[tuple[str, str, str]]


def check(ontology: Ontology, code: Code | None = None) -> list[Problem]:
    """Every way in which the ontology and the code disagree, in the order of the file.

    ``code`` is the installed lab by default.
    """
    code = code or packaged_code()
    rules: tuple[Callable[[Ontology, Code], Found], ...] = (
        _concepts,
        _declared,
        _owned,
        _schemas,
        _excluded,
        _frozen,
        _boundaries,
        _limits,
        _controls,
    )
    source = ontology.document
    problems = [
        Problem(source.file, source.line(path), path, what, do, Reason.CONFLICT)
        for rule in rules
        for path, what, do in rule(ontology, code)
    ]
    return sorted(problems, key=lambda p: p.line)


def _concepts(ontology: Ontology, code: Code) -> Found:
    """Each concept's owner is there, and its fields are that owner's."""
    for concept in ontology.concepts:
        path = (
            f'$.concepts["{concept.name}"]'
            if " " in concept.name
            else (f"$.concepts.{concept.name}")
        )
        owner = ontology.owner(concept.owner)
        if owner is None:
            yield f"{path}.owner", f"there is no owner {concept.owner}", "name one of the owners"
            continue
        owned = {f"{record}.{name}" for record, names in owner.records for name in names}
        for index, field in enumerate(concept.fields):
            if field not in owned:
                what = f"{field} is no field of {owner.name}, whose concept this is"
                yield f"{path}.fields[{index}]", what, "list it in the records of that owner"


def _declared(ontology: Ontology, code: Code) -> Found:
    """Each declared field is in the code."""
    for owner, record, name in ontology.claims():
        cls = code.records.get(record)
        path = f"{owner.path}.records.{record}"
        if cls is None:
            yield path, f"{record}.{name}: there is no record class {record}", "write the class"
        elif name not in _names(cls):
            do = f"write the field in {cls.__module__}, or take it out here"
            yield path, f"{record}.{name} is declared and the class does not have it", do


def _names(cls: type) -> list[str]:
    return [name for name, _, _ in fields_of(cls)]


def _owned(ontology: Ontology, code: Code) -> Found:
    """Each field of a record has one owner."""
    owners: dict[tuple[str, str], list[Owner]] = defaultdict(list)
    for owner, record, name in ontology.claims():
        owners[record, name].append(owner)
    for record, cls in sorted(code.records.items()):
        whole = [owner for owner in ontology.owners if record in dict(owner.records)]
        if not whole:
            what = f"{record}, of {cls.__module__}, has no owner"
            yield "$.owners", what, "list it in the records of one owner"
        for name in _names(cls) if whole else ():
            claimed = owners[record, name]
            path = f"{(claimed or whole)[-1].path}.records.{record}"
            if not claimed:
                do = "list it here, or take it out of the class"
                yield path, f"{record}.{name} has no owner", do
            elif len(claimed) > 1:
                names = " and ".join(owner.name for owner in claimed)
                yield path, f"{record}.{name} has {len(claimed)} owners: {names}", "keep one"


def _schemas(ontology: Ontology, code: Code) -> Found:
    """Each declared field is in its owner's schema, and says whose it is."""
    do = "run `python tools/lab_schemas.py`"
    declared = frozenset(ontology.fields)
    for owner in ontology.owners:
        name = schema_name(owner.name)
        schema = code.schemas.get(name)
        if schema is None:
            yield owner.path, f"there is no schema {name}", do
            continue
        for record, names in owner.records:
            body = schema.get("$defs", {}).get(record, {})
            known = body.get("properties", {})
            path = f"{owner.path}.records.{record}"
            for field in names:
                if field in known and known[field].get("x-owner") != owner.name:
                    said = known[field].get("x-owner")
                    yield path, f"{record}.{field}: its x-owner in schema {name} is {said}", do
                elif field not in known and f"{record}.{field}" in declared:
                    yield path, f"{record}.{field} is declared and schema {name} lacks it", do
            if known and body.get("additionalProperties") is not False:
                yield path, f"{record} is open in schema {name}", do


def _excluded(ontology: Ontology, code: Code) -> Found:
    """No walk over an owner's types reaches what it excludes."""
    for owner in ontology.owners:
        for index, exclusion in enumerate(owner.excludes):
            path = f"{owner.path}.excludes[{index}]"
            unknown = [name for name in exclusion.owners if ontology.owner(name) is None]
            for name in unknown:
                yield path, f"there is no owner {name}", "name one of the owners"
            for found in _reached(ontology, code, owner, exclusion):
                what = f"{owner.name} reaches {exclusion.what}: {found}"
                yield path, what, "take the field out, or give it to the owner of what it holds"


def _reached(ontology: Ontology, code: Code, owner: Owner, exclusion: Exclusion) -> Iterator[str]:
    forbidden = {
        record: other.name
        for other in ontology.owners
        if other.name in exclusion.owners
        for record, _ in other.records
    }
    for record, _ in owner.records:
        if record not in code.records:
            continue
        for way, parts in reach(code, code.records[record]):
            if way[-1][1] in exclusion.fields:
                yield shown(way)
            for part in parts:
                if part.__name__ in forbidden:
                    yield f"{shown(way)} is a {part.__name__} of {forbidden[part.__name__]}"


def _frozen(ontology: Ontology, code: Code) -> Found:
    """No record can change once it is made."""
    for owner in ontology.owners:
        for record, _ in owner.records:
            why = changeable(code.records[record]) if record in code.records else ""
            if why:
                path = f"{owner.path}.records.{record}"
                yield path, f"{record} is mutable: {why}", "use frozen=True, tuples and records"


def _boundaries(ontology: Ontology, code: Code) -> Found:
    """A boundary has neither an engine class nor settings."""
    for owner in ontology.owners:
        if owner.lifecycle.kind != "boundary":
            continue
        path = f"{owner.path}.lifecycle.kind"
        for name, module in code.classes:
            if owner.name in name:
                what = f"{owner.name} is a boundary and {module} has the class {name}"
                yield path, what, "lift its limit with a test and change its lifecycle"
        if owner.controls:
            yield path, f"{owner.name} is a boundary and has controls", "change its lifecycle"


def _limits(ontology: Ontology, code: Code) -> Found:
    """A limit that is implemented names a test that is there, and its owner is no boundary."""
    for owner in ontology.owners:
        for index, limit in enumerate(owner.limits):
            path = f"{owner.path}.limits[{index}]"
            if not limit.implemented:
                if limit.test:
                    yield path, "a limit that holds names a test", "write status: implemented"
                continue
            if owner.lifecycle.kind == "boundary":
                what = f"a limit of {owner.name} is implemented and it still is a boundary"
                yield path, what, "change its lifecycle"
            missing = _untested(limit, code)
            if missing:
                do = "name a test that shows it, as tests/path.py::test_name"
                yield path, f"the limit is marked implemented and {missing}", do


def _untested(limit: Limit, code: Code) -> str:
    """Why a lifted limit's test shows nothing, or ``""``. An installed package has no tests."""
    if limit.test is None:
        return "has no test"
    if code.tree is None:
        return ""
    file, _, name = limit.test.partition("::")
    path = code.tree / file
    if not path.is_file():
        return f"there is no {file}"
    if not re.search(rf"^(?:async )?def {name}\(", path.read_text(encoding="utf-8"), re.MULTILINE):
        return f"{file} has no {name}"
    return ""


def _controls(ontology: Ontology, code: Code) -> Found:
    """Each control path leads to a setting of its owner, and each setting is a control."""
    known = {control.path: control for control in controls(code)}
    listed = set()
    for owner in ontology.owners:
        for index, path in enumerate(owner.controls):
            place = f"{owner.path}.controls[{index}]"
            listed.add(path)
            control = known.get(path)
            if control is None:
                yield place, f"the control path {path} does not resolve", "see the settings' fields"
            elif control.field not in dict(owner.records).get(control.record, ()):
                what = f"{path} sets {control.record}.{control.field}, which is not {owner.name}'s"
                yield place, what, f"list it at {ontology.owner_of(control.record)}"
    for path, control in known.items():
        if path not in listed:
            what = f"{path} can be set and no owner has it as a control"
            yield "$.owners", what, f"list it at {ontology.owner_of(control.record)}"
