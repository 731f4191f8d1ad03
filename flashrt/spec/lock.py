"""The digest lock: every spec version ever released and the bytes it is frozen at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from flashrt.document import schema
from flashrt.document.canonical import sha256
from flashrt.document.problem import InputError, Problem
from flashrt.document.yaml_source import Document, load_yaml
from flashrt.spec.model import StructureSpec
from flashrt_runtime.reason import Reason

FILE = "digests.lock"


class Status(Enum):
    """active: the one to use; coexisting: still loads; retired: gone, and says so."""

    ACTIVE = "active"
    COEXISTING = "coexisting"
    RETIRED = "retired"


@dataclass(frozen=True)
class Migration:
    """Since when a version is gone, why, and what to use instead (``name@version``)."""

    since: str
    why: str
    instead: str


@dataclass(frozen=True)
class Entry:
    """One spec version. ``reference`` is empty where the spec has no reference file."""

    name: str
    version: int
    digest: str
    reference: str
    status: Status
    migration: Migration | None
    file: str
    line: int
    path: str

    @property
    def id(self) -> str:
        """``name@version``."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class Lock:
    """The entries of one catalog."""

    file: str
    entries: tuple[Entry, ...]

    def find(self, name: str, version: int) -> Entry | None:
        """The entry of one version, if there is one."""
        return next((e for e in self.entries if (e.name, e.version) == (name, version)), None)

    def every(self, name: str, version: int) -> list[Entry]:
        """All entries of one version: several where the lock contradicts itself."""
        return [e for e in self.entries if (e.name, e.version) == (name, version)]

    def active(self, name: str) -> Entry | None:
        """The version to use when none is named."""
        live = (e for e in self.entries if e.name == name and e.status is Status.ACTIVE)
        return next(live, None)

    def of(self, name: str) -> list[Entry]:
        """Every version of one name, oldest first."""
        return sorted((e for e in self.entries if e.name == name), key=lambda e: e.version)


def read_lock(root: Path) -> Lock | None:
    """The lock of a catalog folder, or None where the folder has none.

    Raises :class:`InputError` for a lock that says a version twice, has two active versions of a
    name, or retires a version in favour of one that it does not list as live.
    """
    lock, found = scan_lock(root)
    if found:
        raise InputError.of(found)
    return lock


def scan_lock(root: Path) -> tuple[Lock | None, list[Problem]]:
    """What can be read of a catalog's lock, and everything that is wrong with it.

    One bad entry hides no other: entries that contradict one another are all kept, and only those
    that do not satisfy the schema are left out. Raises :class:`InputError` for a file that cannot
    be read at all.
    """
    file = root / FILE
    if not file.exists():
        return None, []
    document = load_yaml(file)
    found = schema.problems(document.value, "digests_lock", document)
    listed = document.value.get("structures") if isinstance(document.value, dict) else None
    rows = listed if isinstance(listed, list) else []
    if found:  # each row by itself: of very many problems only the first are said above
        rows = [row if _satisfies(row) else None for row in rows]
    entries = [_entry(document, i, row) for i, row in enumerate(rows) if row is not None]
    return Lock(document.file, tuple(entries)), [*found, *_contradictions(entries)]


def _satisfies(row: object) -> bool:
    alone = {"schema": "flashrt.digests/1", "structures": [row]}
    return schema.accepts(alone, "digests_lock")


def _entry(document: Document, index: int, item: Mapping[str, Any]) -> Entry:
    path = f"$.structures[{index}]"
    note = item.get("migration")
    return Entry(
        name=item["name"],
        version=item["version"],
        digest=item["digest"],
        reference=item.get("reference", ""),
        status=Status(item["status"]),
        migration=Migration(note["since"], note["why"], note["instead"]) if note else None,
        file=document.file,
        line=document.line(path),
        path=path,
    )


def _contradictions(entries: list[Entry]) -> list[Problem]:
    found = []
    seen: set[str] = set()
    active: set[str] = set()
    live = {e.id for e in entries if e.status is not Status.RETIRED}
    for entry in entries:
        if entry.id in seen:
            found.append(problem(entry, f"{entry.id} is listed twice", "keep one", Reason.CONFLICT))
        seen.add(entry.id)
        if entry.status is Status.ACTIVE:
            if entry.name in active:
                what = f"{entry.name} has two active versions"
                found.append(problem(entry, what, "make one coexisting", Reason.CONFLICT))
            active.add(entry.name)
        if entry.migration and entry.migration.instead not in live:
            what = f"{entry.id} points to {entry.migration.instead}, which is not live"
            found.append(problem(entry, what, "name a version that loads", Reason.CONFLICT))
    return found


def problem(entry: Entry, what: str, do: str, reason: Reason) -> Problem:
    """A problem at an entry's own line."""
    return Problem(entry.file, entry.line, entry.path, what, do, reason)


def line_for(spec: StructureSpec) -> str:
    """The lock's line that freezes a spec, ready to paste."""
    reference = f', reference: "{reference_digest(spec)}"' if spec.reference else ""
    return (
        f'- {{name: {spec.name}, version: {spec.version}, digest: "{spec.digest}"{reference}, '
        f"status: active}}"
    )


def reference_digest(spec: StructureSpec) -> str:
    """``sha256:…`` of the reference's bytes, empty where the spec has no reference file."""
    return sha256(spec.reference.read_bytes()) if spec.reference else ""


def moved(entry: Entry, spec: StructureSpec) -> list[Problem]:
    """What differs between a spec's bytes and the bytes it is frozen at."""
    found = []
    do = (
        f"restore the bytes, or move the old folder's files to v{spec.version}/, raise the version "
        f"and add the new one to {FILE}"
    )
    if spec.digest != entry.digest:
        what = f"{spec.id} has {spec.digest}, {FILE} froze {entry.digest}"
        found.append(Problem(str(spec.path), 1, "$", what, do, Reason.STALE_SPEC))
    if reference_digest(spec) != entry.reference:
        where = str(spec.reference or spec.path)
        what = f"the reference of {spec.id} is not the one that {FILE} froze"
        found.append(Problem(where, 1, "$", what, do, Reason.STALE_SPEC))
    return found
