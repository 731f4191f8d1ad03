"""Validation against the packaged JSON Schemas (draft 2020-12), with file, line and path.

Two validators share the work: a compiled one says yes in microseconds, and only what it does not
accept is explained, error by error, by the one whose messages people can read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import resources
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import jsonschema_rs

from flashrt.document.problem import InputError, Problem
from flashrt.document.yaml_source import Document, child

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

MAX_PROBLEMS = 1000
# The folder of the schemas of the lab's records.
LAB = "lab"
_SUFFIX = ".schema.json"
_SHOWN = 300


def schema_names() -> list[str]:
    """Names that ``schema`` accepts, e.g. ``structure``, and ``lab/kv_state`` of the folder lab."""
    root = resources.files("flashrt.schemas")
    folders = {"": root, f"{LAB}/": root / LAB}
    return sorted(
        before + entry.name.removesuffix(_SUFFIX)
        for before, folder in folders.items()
        if folder.is_dir()
        for entry in folder.iterdir()
        if entry.name.endswith(_SUFFIX)
    )


def name_of(path: PurePath) -> str:
    """The name of the schema that a file ``NAME.schema.json`` is to hold, by where it is."""
    name = path.name.removesuffix(_SUFFIX)
    return f"{LAB}/{name}" if path.parts[-3:-1] == ("schemas", LAB) else name


@lru_cache(maxsize=64)
def schema_text(name: str) -> str:
    """The packaged schema's own bytes, as text. Raises ``KeyError`` for an unknown name."""
    entry = resources.files("flashrt.schemas") / f"{name}{_SUFFIX}"
    if not entry.is_file():
        raise KeyError(name)
    return entry.read_text(encoding="utf-8")


def urn(name: str) -> str:
    """The ``$id`` of the schema ``name``."""
    return f"urn:flashrt:schema:{name}:1"


def nothing(address: str) -> Any:
    """The retriever of every validator here: what is not packaged is never fetched.

    Raises :class:`LookupError`, always.
    """
    raise LookupError(f"{address} is not a packaged schema")


@lru_cache(maxsize=1)
def documents() -> dict[str, Any]:
    """Every packaged schema by name."""
    return {name: json.loads(schema_text(name)) for name in schema_names()}


@lru_cache(maxsize=64)
def _compiled(name: str) -> Any:
    known = [(document["$id"], document) for document in documents().values()]
    registry = jsonschema_rs.Registry(known, retriever=nothing)
    return jsonschema_rs.Draft202012Validator(
        documents()[name], registry=registry, retriever=nothing
    )


@lru_cache(maxsize=64)
def _explainer(name: str) -> Draft202012Validator:
    from flashrt.document.explain import validator

    return validator(documents(), name)


def json_path(error: ValidationError) -> str:
    """``$.a[0].b`` of the instance that failed."""
    path = "$"
    for part in error.absolute_path:
        path = child(path, part)
    return path


def first(found: Iterable[Problem]) -> list[Problem]:
    """The first thousand of one file's problems, and a word where there are more."""
    kept = list(islice(found, MAX_PROBLEMS + 1))
    if len(kept) > MAX_PROBLEMS:
        last = kept.pop()
        kept.append(Problem(last.file, 1, "$", "there are more problems", "repair these"))
    return kept


def _say(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def problems(
    value: Any, name: str, document: Document | None = None, file: str = ""
) -> list[Problem]:
    """Every violation of schema ``name``, in document order; the first thousand of more."""
    if accepts(value, name):
        return []
    source = document.file if document else file
    do = f"see `flashrt schema {name}`"
    found: list[Problem] = []
    try:
        for path, what in _violations(value, name):
            if len(found) == MAX_PROBLEMS:
                found.append(Problem(source, 1, "$", "there are more problems", "repair these"))
                break
            line = document.line(path) if document else 1
            found.append(Problem(source, line, path, _say(what), do))
    except RecursionError:
        found.append(Problem(source, 1, "$", "nested too deeply", "make it flatter"))
    return sorted(found, key=lambda p: (p.line, p.path, p.what))


def accepts(value: Any, name: str) -> bool:
    """Whether a value satisfies schema ``name``; faster than to ask why not."""
    try:
        return bool(_compiled(name).is_valid(value))
    except (ValueError, TypeError, OverflowError):  # a depth or a number that it cannot hold
        return False


def _violations(value: Any, name: str) -> Iterator[tuple[str, str]]:
    none = True
    for error in _explainer(name).iter_errors(value):
        none = False
        leaf = error
        while leaf.context:
            leaf = max(leaf.context, key=lambda e: len(e.absolute_path))
        yield json_path(leaf), leaf.message
    if none:  # the two differ: the stricter one decides
        yield "$", f"it does not satisfy the schema {name}"


def require(value: Any, name: str, document: Document | None = None, file: str = "") -> None:
    """Raise :class:`InputError` with every violation when there is one."""
    found = problems(value, name, document, file)
    if found:
        raise InputError.of(found)
