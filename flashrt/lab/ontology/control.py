"""Controls: the settings that an experiment may change, by their paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flashrt.lab.ontology.code import Code, classes_in, packaged_code
from flashrt.lab.records.codec import fields_of

ROOT = "KVResidencySystemConfig"


@dataclass(frozen=True)
class Control:
    """One setting: its path, the record and field that hold it, and the field's type."""

    path: str
    record: str
    field: str
    hint: Any


def controls(code: Code | None = None) -> Iterator[Control]:
    """Every control, in the order of the settings' fields."""
    code = code or packaged_code()
    yield from _below(code, code.records[ROOT], "")


def resolve(path: str, code: Code | None = None) -> Control | None:
    """The control of a path such as ``kv_cache.device_kv_bytes``; ``None`` where there is none."""
    return next((control for control in controls(code) if control.path == path), None)


def _below(code: Code, record: type, before: str) -> Iterator[Control]:
    for name, hint, _ in fields_of(record):
        inner = classes_in(hint)
        if inner:
            yield from _below(code, code.current(inner[0]), f"{before}{name}.")
        else:
            yield Control(f"{before}{name}", record.__name__, name, hint)
