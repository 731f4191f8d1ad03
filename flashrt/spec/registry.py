"""Finds structures by name: several versions side by side, retirement and unknown names loud."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from flashrt.document.problem import InputError, Problem
from flashrt.spec.lock import FILE as LOCK_FILE
from flashrt.spec.lock import Entry, Lock, Status, line_for, moved, problem, read_lock, scan_lock
from flashrt.spec.model import StructureSpec, suggest
from flashrt.spec.reader import FILE, read
from flashrt_runtime.reason import Reason, Refusal

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


def catalog_root() -> Path:
    """The packaged catalog's folder."""
    return Path(str(resources.files("flashrt.catalog")))


def structure_names(root: Path | None = None) -> list[str]:
    """Names that have a spec on disk, sorted."""
    folder = root or catalog_root()
    return sorted(p.parent.name for p in folder.glob(f"*/{FILE}"))


def spec_files(root: Path | None = None) -> list[Path]:
    """Every ``structure.yaml`` of a catalog, older versions included, sorted."""
    folder = root or catalog_root()
    return sorted([*folder.glob(f"*/{FILE}"), *folder.glob(f"*/v[0-9]*/{FILE}")])


def root_for(structure: str, catalogs: Sequence[Path]) -> Path | None:
    """The first of the caller's catalogs that has the name; None for the packaged one."""
    name = structure.partition("@")[0]
    return next((c for c in catalogs if _NAME.fullmatch(name) and (c / name).is_dir()), None)


def load(name: str | Path, version: int | None = None, root: Path | None = None) -> StructureSpec:
    """The spec of ``"decoder_ffn"``, ``"decoder_ffn@1"`` or of a file or folder.

    Without a version the active one is loaded. ``root`` is a catalog folder, the packaged one by
    default. Raises :class:`Refusal`: STRUCTURE for an unknown name or version, RETIRED for a
    retired one, STALE_SPEC when its bytes are not the frozen ones; :class:`InputError` for a spec
    that cannot be read.
    """
    if isinstance(name, Path):
        return read(name)
    folder = root or catalog_root()
    name, version = _split(name, version)
    lock = read_lock(folder)
    known = sorted({*structure_names(folder), *(e.name for e in (lock.entries if lock else ()))})
    if not _NAME.fullmatch(name) or name not in known:
        raise Refusal(
            Reason.STRUCTURE,
            "there is no structure of this name",
            subject=name,
            do=suggest(name, known),
        )
    if version is None:
        version = _current(name, folder, lock)
    entry = lock.find(name, version) if lock else None
    if entry and entry.status is Status.RETIRED:
        raise _retired(entry)
    spec = _version(name, version, folder, lock)
    if entry:
        found = moved(entry, spec)
        if found:
            raise InputError.of(found)
    return spec


def _split(name: str, version: int | None) -> tuple[str, int | None]:
    bare, at, number = name.partition("@")
    if not at:
        return bare, version
    if not re.fullmatch(r"[1-9][0-9]{0,3}", number):
        raise Refusal(
            Reason.STRUCTURE, f"{number!r} is not a version", subject=name, do=f"write {bare}@1"
        )
    if version is not None and version != int(number):
        raise Refusal(
            Reason.CONFLICT, f"version {version} was asked for too", subject=name, do="say it once"
        )
    return bare, int(number)


def _current(name: str, folder: Path, lock: Lock | None) -> int:
    active = lock.active(name) if lock else None
    if active:
        return active.version
    gone = [e for e in lock.of(name) if e.status is Status.RETIRED] if lock else []
    if gone and not (folder / name / FILE).exists():
        raise _retired(gone[-1])
    return read(folder / name).version


def _version(name: str, version: int, folder: Path, lock: Lock | None) -> StructureSpec:
    older = folder / name / f"v{version}"
    if (older / FILE).exists():
        return read(older)
    if (folder / name / FILE).exists():
        spec = read(folder / name)
        if spec.version == version:
            return spec
    versions = [f"{name}@{p}" for p in _versions(name, folder)]
    raise Refusal(
        Reason.STRUCTURE,
        "this version is not in the catalog",
        subject=f"{name}@{version}",
        do="there is " + (", ".join(versions) or "none"),
    )


def _versions(name: str, folder: Path) -> list[int]:
    found = {read(p).version for p in spec_files(folder) if p.is_relative_to(folder / name)}
    return sorted(found)


def _retired(entry: Entry) -> Refusal:
    note = entry.migration
    if note is None:
        return Refusal(Reason.RETIRED, "this version was retired", subject=entry.id)
    return Refusal(
        Reason.RETIRED,
        f"this version was retired in {note.since}: {note.why}",
        subject=entry.id,
        do=f"use {note.instead}",
    )


def check_lock(root: Path | None = None) -> list[Problem]:
    """Every difference between a catalog and its digest lock; empty when they agree.

    Bytes that moved without a version, versions the lock does not list, versions listed as live
    whose file is gone, a catalog without a lock, and what is wrong with the lock itself, which
    hides none of the others.
    """
    folder = root or catalog_root()
    try:
        lock, found = scan_lock(folder)
    except InputError as error:
        return list(error.problems)
    if lock is None:
        what = f"the catalog has no {LOCK_FILE}"
        return [Problem(str(folder / LOCK_FILE), 1, "$", what, "write one", Reason.STALE_SPEC)]
    seen: set[str] = set()
    for file in spec_files(folder):
        try:
            spec = read(file)
        except InputError as error:
            found += error.problems
            continue
        seen.add(spec.id)
        entries = lock.every(spec.name, spec.version)
        if not entries:
            what = f"{spec.id} is not in {LOCK_FILE}"
            do = f"add {line_for(spec)}"
            found.append(Problem(lock.file, 1, "$.structures", what, do, Reason.STALE_SPEC))
        for entry in entries:
            if entry.status is not Status.RETIRED:
                found += moved(entry, spec)
    for entry in lock.entries:
        if entry.status is not Status.RETIRED and entry.id not in seen:
            what = f"{entry.id} is listed as {entry.status.value}, and no such spec is here"
            do = "restore the spec or retire the version with a migration note"
            found.append(problem(entry, what, do, Reason.STALE_SPEC))
    return found
