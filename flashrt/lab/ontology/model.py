"""What the ontology says: concepts, owners, and what each owns, excludes and is limited to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from flashrt.document.yaml_source import Document

LifecycleKind = Literal[
    "artifact",
    "snapshot",
    "system",
    "request",
    "input",
    "draft",
    "evidence",
    "operation",
    "run",
    "boundary",
    "inspection",
]


@dataclass(frozen=True)
class Concept:
    """What a picture stands for, whose it is, and the fields (``Record.field``) that hold it."""

    name: str
    owner: str
    meaning: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Lifecycle:
    """When an owner's records may change. A ``boundary`` has no engine class and no settings."""

    kind: LifecycleKind
    says: str


@dataclass(frozen=True)
class Exclusion:
    """What no walk over the types of an owner's records may reach: owners, or names of fields."""

    what: str
    owners: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Limit:
    """What is not claimed or not implemented. An ``implemented`` one names the test of that."""

    what: str
    implemented: bool = False
    test: str | None = None


@dataclass(frozen=True)
class Owner:
    """The one place of some records. ``records`` holds each class with the fields that are its."""

    name: str
    meaning: str
    lifecycle: Lifecycle
    records: tuple[tuple[str, tuple[str, ...]], ...]
    owns: tuple[str, ...]
    controls: tuple[str, ...] = ()
    excludes: tuple[Exclusion, ...] = ()
    limits: tuple[Limit, ...] = ()

    @property
    def path(self) -> str:
        """Where it stands in its file."""
        return f"$.owners.{self.name}"


@dataclass(frozen=True)
class Ontology:
    """A whole ontology and the document that it was read from."""

    concepts: tuple[Concept, ...]
    owners: tuple[Owner, ...]
    document: Document

    @property
    def fields(self) -> tuple[str, ...]:
        """Every declared field once, in the order of the concepts."""
        return tuple(dict.fromkeys(field for c in self.concepts for field in c.fields))

    def owner(self, name: str) -> Owner | None:
        """The owner of this name."""
        return next((owner for owner in self.owners if owner.name == name), None)

    def owner_of(self, record: str) -> str | None:
        """The owner of a record class; the first where several claim it."""
        return next((o.name for o in self.owners if record in dict(o.records)), None)

    def claims(self) -> Iterator[tuple[Owner, str, str]]:
        """Every claim to a field: the owner, the record and the field's name."""
        for owner in self.owners:
            for record, names in owner.records:
                for name in names:
                    yield owner, record, name
