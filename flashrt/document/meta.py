"""A file that is itself a JSON Schema: held against draft 2020-12 without reading anything else.

Whatever address a schema names, in ``$schema``, ``$id`` or a reference, is compared as text: no
file is opened for it and nothing is asked of a network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from flashrt.document import schema
from flashrt.document.problem import Problem
from flashrt.document.yaml_source import child

DRAFT = "https://json-schema.org/draft/2020-12/schema"
# Their values are data, in which a reference is none.
_DATA = ("const", "enum", "default", "examples")
# Their values are schemas by name, so that a name may be that of a keyword.
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_REFERENCES = ("$ref", "$dynamicRef")
_SHOWN = 300
_LONGEST = 1000

# Where a node is: its parent's place and the step from there; () at the top. Paths are written
# only for problems, as a file may hold a million nodes under one very long key.
Place = Any
Node = tuple[Place, Mapping[str, Any]]


def problems(value: Mapping[str, Any], name: str, file: str) -> list[Problem]:
    """What is wrong with the schema that a file ``NAME.schema.json`` holds; lines are all 1.

    It must be draft 2020-12 and say so, have the ``$id`` that its name gives it, and refer only to
    what is in it or in a packaged schema.
    """

    def problem(path: str, what: str, do: str) -> Problem:
        said = what if len(what) <= _SHOWN else what[: _SHOWN - 3] + "..."
        return Problem(file, 1, path, said, do)

    if value.get("$schema") != DRAFT:
        return [problem("$.$schema", "it is not a schema of draft 2020-12", f"write {DRAFT}")]
    broken = (problem(path, what, "see draft 2020-12") for path, what in _broken(value))
    found = schema.first(broken)
    if found:
        return found
    own = schema.urn(name)
    others = (problem(*said) for said in _addresses(value, own))
    if value.get("$id") != own:
        found.append(problem("$.$id", f"$id is not {own}", "file name and $id must agree"))
    return schema.first([*found, *islice(others, schema.MAX_PROBLEMS + 1)])


@lru_cache(maxsize=1)
def _rules() -> Any:
    return jsonschema_rs.Draft202012Validator(
        {"$ref": DRAFT}, retriever=schema.nothing, validate_formats=True
    )


def _broken(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the draft's own schema does not accept."""
    try:
        for error in _rules().iter_errors(value):
            yield _path(error.instance_path), error.message
    except (ValueError, TypeError, OverflowError) as error:  # a depth or number it cannot hold
        yield "$", f"no JSON Schema: {error}"


def _addresses(value: Mapping[str, Any], own: str) -> Iterator[tuple[str, str, str]]:
    """Every other resource that it names, and every reference to what is not there."""
    anchors = _anchors(value)
    for place, node in _nodes(value):
        for key in ("$schema", "$id"):
            if place and key in node:
                what = f"a part of a schema has no {key} of its own"
                yield _path([*_steps(place), key]), what, "write one schema a file"
        for key in _REFERENCES:
            if key in node and not _there(node[key], value, own, anchors):
                do = "refer to #/… in this file, or to a packaged schema by its $id"
                yield _path([*_steps(place), key]), f"{node[key]!r} is not there", do


def _nodes(value: Mapping[str, Any]) -> Iterator[Node]:
    """Every mapping that may be a schema, with its place; not the values of a data keyword."""
    waiting: list[tuple[Place, Any, bool]] = [((), value, False)]
    while waiting:
        place, node, named = waiting.pop()
        if isinstance(node, list):
            waiting += [((place, i), item, False) for i, item in enumerate(node)]
        elif isinstance(node, dict):
            if not named:
                yield place, node
            for key, item in node.items():
                if named or key not in _DATA:
                    waiting.append(((place, key), item, not named and key in _NAMED))


def _steps(place: Place) -> list[str | int]:
    steps: list[str | int] = []
    while place:
        place, step = place
        steps.append(step)
    return steps[::-1]


def _path(steps: Sequence[str | int]) -> str:
    """``$.a[0].b``, cut where it would be too long to read."""
    path = "$"
    for step in steps:
        path = child(path, step)
        if len(path) > _LONGEST:
            return path[:_LONGEST] + "…"
    return path


def _anchors(value: Mapping[str, Any]) -> frozenset[str]:
    every = (node.get(key) for _, node in _nodes(value) for key in ("$anchor", "$dynamicAnchor"))
    return frozenset(anchor for anchor in every if isinstance(anchor, str))


def _there(reference: Any, value: Mapping[str, Any], own: str, anchors: frozenset[str]) -> bool:
    """Whether a reference leads somewhere in this schema or in a packaged one."""
    if not isinstance(reference, str):  # below a keyword that the draft does not know
        return False
    address, _, part = reference.partition("#")
    if address and address != own:
        packaged = schema.documents()
        found = next((d for d in packaged.values() if d["$id"] == address), None)
        if found is None:
            return False
        value, anchors = found, _anchors(found)
    part = unquote(part)
    return _points(value, part) if not part or part.startswith("/") else part in anchors


def _points(value: Any, pointer: str) -> bool:
    """Whether a JSON pointer leads to something of ``value``."""
    for raw in pointer.split("/")[1:]:
        step = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and len(step) < 7:
            if int(step) >= len(value):
                return False
            value = value[int(step)]
        else:
            return False
    return True
