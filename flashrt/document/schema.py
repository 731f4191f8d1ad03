"""Validation against the packaged JSON Schemas (draft 2020-12), with file, line and path."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from referencing import Registry, Resource

from flashrt.document.problem import InputError, Problem
from flashrt.document.yaml_source import Document


def schema_names() -> list[str]:
    """Names that ``schema`` accepts, e.g. ``structure``."""
    root = resources.files("flashrt.schemas")
    suffix = ".schema.json"
    return sorted(p.name.removesuffix(suffix) for p in root.iterdir() if p.name.endswith(suffix))


@lru_cache(maxsize=64)
def schema_text(name: str) -> str:
    """The packaged schema's own bytes, as text. Raises ``KeyError`` for an unknown name."""
    entry = resources.files("flashrt.schemas") / f"{name}.schema.json"
    if not entry.is_file():
        raise KeyError(name)
    return entry.read_text(encoding="utf-8")


@lru_cache(maxsize=64)
def _validator(name: str) -> Draft202012Validator:
    documents = {n: json.loads(schema_text(n)) for n in schema_names()}
    registry: Registry[Any] = Registry().with_resources(
        [(d["$id"], Resource.from_contents(d)) for d in documents.values()]
    )
    Draft202012Validator.check_schema(documents[name])
    return Draft202012Validator(documents[name], registry=registry)


def json_path(error: ValidationError) -> str:
    """``$.a[0].b`` of the instance that failed."""
    path = "$"
    for part in error.absolute_path:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path


def _say(error: ValidationError) -> str:
    text = error.message
    return text if len(text) <= 300 else text[:297] + "..."


def problems(
    value: Any, name: str, document: Document | None = None, file: str = ""
) -> list[Problem]:
    """Every violation of schema ``name``, in document order."""
    found = []
    for error in _validator(name).iter_errors(value):
        leaf = error
        while leaf.context:
            leaf = max(leaf.context, key=lambda e: len(e.absolute_path))
        path = json_path(leaf)
        line = document.line(path) if document else 1
        source = document.file if document else file
        found.append(Problem(source, line, path, _say(leaf), f"see `flashrt schema {name}`"))
    return sorted(found, key=lambda p: (p.line, p.path, p.what))


def require(value: Any, name: str, document: Document | None = None, file: str = "") -> None:
    """Raise :class:`InputError` with every violation when there is one."""
    found = problems(value, name, document, file)
    if found:
        raise InputError.of(found)
