"""The code that an ontology speaks of: record classes, schemas, engine classes and tests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, get_args

import flashrt.lab
from flashrt.document.schema import documents
from flashrt.lab import records
from flashrt.lab.records.codec import fields_of

PREFIX = "lab/"
_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True)
class Code:
    """What is there. Tests hold a changed copy against the same ontology.

    ``records`` are the record classes by name, ``schemas`` the lab's schemas by owner, ``classes``
    every other class of the lab with its module, ``tree`` the folder that has ``tests``, if any.
    """

    records: Mapping[str, type]
    schemas: Mapping[str, Mapping[str, Any]]
    classes: tuple[tuple[str, str], ...]
    tree: Path | None

    def current(self, cls: type) -> type:
        """The class of this name, so that a changed one stands for the one it replaces."""
        return self.records.get(cls.__name__, cls)


def schema_name(owner: str) -> str:
    """Name of an owner's schema: ``KVCache`` is ``lab/kv_cache``."""
    return PREFIX + _WORDS.sub("_", owner).lower()


@lru_cache(maxsize=1)
def packaged_code() -> Code:
    """The installed lab. ``tree`` is ``None`` where its tests are not beside it."""
    root = Path(flashrt.lab.__path__[0])
    tree = root.parents[1]
    return Code(
        records=dict(_records()),
        schemas={n: body for n, body in documents().items() if n.startswith(PREFIX)},
        classes=tuple(_classes(root)),
        tree=tree if (tree / "tests").is_dir() else None,
    )


def _records() -> Iterator[tuple[str, type]]:
    """Every record class that the package of records shows, and those that they are made of."""
    waiting = [
        cls
        for cls in vars(records).values()
        if isinstance(cls, type) and is_dataclass(cls) and cls is not records.Says
    ]
    seen: set[type] = set()
    while waiting:
        cls = waiting.pop()
        if cls not in seen:
            seen.add(cls)
            yield cls.__name__, cls
            waiting += [part for _, hint, _ in fields_of(cls) for part in classes_in(hint)]


def classes_in(hint: Any) -> list[type]:
    """Every record class that a type is made of."""
    if isinstance(hint, type) and is_dataclass(hint):
        return [hint]
    return [cls for part in parts_of(hint) for cls in classes_in(part)]


def parts_of(hint: Any) -> tuple[Any, ...]:
    """What a type is made of, and what a generic record holds.

    A type variable stands for any record and leads nowhere by itself.
    """
    if isinstance(hint, TypeVar):
        return ()
    origin = getattr(hint, "__origin__", None)
    own = (origin,) if isinstance(origin, type) and is_dataclass(origin) else ()
    return (*own, *(part for part in get_args(hint) if not isinstance(part, str)))


def _classes(root: Path) -> Iterator[tuple[str, str]]:
    """Every class of the lab outside its records, and the module it is in."""
    for path in sorted(root.rglob("*.py")):
        room = path.relative_to(root).parts[0]
        if room != "records":
            for match in _CLASS.finditer(path.read_text(encoding="utf-8")):
                yield match[1], "/".join(("flashrt", "lab", *path.relative_to(root).parts))
