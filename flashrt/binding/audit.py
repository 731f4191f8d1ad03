"""Everything ``flashrt validate`` checks: schema, meaning and digests of each kind of file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flashrt.binding.files import (
    below,
    impls_root,
    inside,
    packaged,
    receipts_root,
    tree_of,
)
from flashrt.binding.kinds import kind_of
from flashrt.binding.reader import bindings_root, read_binding
from flashrt.binding.shelf import Shelf
from flashrt.document import meta, schema
from flashrt.document.canonical import digest_of, object_of, parse_json
from flashrt.document.problem import InputError, Problem
from flashrt.document.read import read_regular, text_of
from flashrt.document.yaml_source import Document, lines_of, load_yaml
from flashrt.spec import impl_manifest, reader, retirement
from flashrt.spec.lock import FILE as LOCK_FILE
from flashrt.spec.lock import scan_lock
from flashrt.spec.model import StructureSpec
from flashrt.spec.registry import catalog_root, check_lock
from flashrt.spec.trial import read_reference, try_reference
from flashrt_runtime.reason import Reason

__all__ = ["Checked", "audit", "kind_of", "packaged"]

# Enough for a receipt with its raw data; a parsed value takes about fifty times its text.
JSON_BYTES = 8 * 1024 * 1024
# A schema is written by hand; every violation of it is held at once.
SCHEMA_BYTES = 1024 * 1024
ONTOLOGY, DESIGN = "ontology", "lab/experiment_design"


@dataclass(frozen=True)
class Checked:
    """One file, what it was taken for, what is wrong and what is only to be noted."""

    file: str
    kind: str
    problems: tuple[Problem, ...] = ()
    notices: tuple[Problem, ...] = ()


def audit(paths: Sequence[Path] = (), catalogs: Sequence[Path] = ()) -> list[Checked]:
    """Check files and folders, or everything of this tree when none is given.

    ``catalogs`` are folders whose structures may be named and whose references are run; those of
    other folders, the packaged one included, are only parsed (its bytes are frozen, and the tests
    run them). One :class:`Checked` per file, in order; in a folder, JSON that is not ours is passed
    over. A file that a link brings in from outside the tree is refused unread.
    """
    shelf = Shelf(catalogs)
    if not paths:
        return [_check(_short(path), shelf) for path in packaged()]
    checked: list[Checked] = []
    for path in paths:
        if path.is_dir():
            checked += _folder(path, shelf)
        else:
            checked.append(_linked(path, tree_of(path)) or _check(path, shelf))
    return checked


def _folder(path: Path, shelf: Shelf) -> list[Checked]:
    found: list[Checked] = []
    try:
        for file in below(path):
            one = _linked(file, path) or _check_in(file, shelf)
            found += [one] if one else []
    except InputError as error:
        found.append(Checked(str(path), "folder", error.problems))
    if not found:
        what = "the folder holds no file that flashrt knows"
        found = [Checked(str(path), "folder", (_problem(str(path), what, "name another"),))]
    return found


def _linked(path: Path, tree: Path) -> Checked | None:
    try:
        inside(path, tree)
    except InputError as error:
        return Checked(str(path), "link", error.problems)
    return None


def _short(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _problem(file: str, what: str, do: str = "", reason: Reason = Reason.SCHEMA) -> Problem:
    return Problem(file, 1, "$", what, do, reason)


def _check_in(path: Path, shelf: Shelf) -> Checked | None:
    """A file of a folder; None for JSON that does not claim to be ours."""
    if path.suffix == ".json" and not path.name.endswith(".schema.json"):
        try:
            claim = object_of(read_regular(path, JSON_BYTES), str(path)).get("schema")
        except InputError as error:
            return Checked(str(path), "json", error.problems)
        if not isinstance(claim, str) or not claim.startswith("flashrt."):
            return None
    return _check(path, shelf)


def _check(path: Path, shelf: Shelf) -> Checked:
    kind = path.suffix.removeprefix(".") or "file"
    notices: tuple[Problem, ...] = ()
    try:
        if path.name.endswith(".schema.json"):
            kind = "schema"
            problems = _placed(path, _schema(path))
        elif path.suffix == ".jsonl":
            kind = "ledger"
            problems = schema.first(_lines(path))
        else:
            document = load_yaml(path) if path.suffix != ".json" else _json(path)
            kind = kind_of(document)
            if kind == "region_binding":
                problems, notices = [], read_binding(document, shelf).notices
            else:
                # A lock's own check has the schema in it, so that a bad entry hides no other.
                lock = kind == "digests_lock" and path.name == LOCK_FILE
                problems = [] if lock else schema.problems(document.value, kind, document)
                problems = problems or _meaning(path, kind, document, shelf)
                problems = _placed(path, problems) if path.suffix == ".json" else problems
    except InputError as error:
        problems = list(error.problems)
    return Checked(str(path), kind, tuple(schema.first(problems)), notices)


def _meaning(path: Path, kind: str, document: Document, shelf: Shelf) -> list[Problem]:
    if kind == "structure":
        return _structure(reader.read(path), shelf)
    if kind == "impl_manifest":
        return list(impl_manifest.misfits(document, path, shelf.catalogs))
    if kind == "digests_lock":
        return _lock(path)
    if kind in (ONTOLOGY, DESIGN):
        return _lab(kind, document)
    return list(_digest(path, document)) if "digest" in document.value else []


def _lab(kind: str, document: Document) -> list[Problem]:
    from flashrt.lab.execution.design import problems_of
    from flashrt.lab.ontology import check, check_design, load, ontology_of

    if kind == ONTOLOGY:
        return check(ontology_of(document))
    return check_design(document, load()) or problems_of(document)


def _structure(spec: StructureSpec, shelf: Shelf) -> list[Problem]:
    if spec.reference is None:
        return []
    inside(spec.reference, spec.path.parent)
    run = any(_real(spec.reference).is_relative_to(_real(folder)) for folder in shelf.catalogs)
    return try_reference(spec, shelf.catalogs) if run else read_reference(spec)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _lock(path: Path) -> list[Problem]:
    found = check_lock(path.parent)
    lock, _ = scan_lock(path.parent)
    if lock and path.resolve().parent == catalog_root().resolve():
        named = retirement.users(bindings_root(), impls_root())
        found += retirement.refused(lock, named, retirement.receipts(receipts_root()))
    return found


def _digest(path: Path, document: Document) -> Iterator[Problem]:
    body = document.value
    actual = digest_of(body)
    if body["digest"] != actual:
        what = f"the body's digest is {actual}"
        line = document.line("$.digest")
        do = "the file was edited after it was sealed: restore it"
        yield Problem(document.file, line, "$.digest", what, do, Reason.DIGEST)
    name = body["digest"].removeprefix("sha256:")
    if len(path.stem) == 64 and path.stem != name:
        what = f"the file is named {path.stem}, its digest is {name}"
        yield _problem(document.file, what, "restore the name", Reason.DIGEST)


def _json(path: Path) -> Document:
    data = read_regular(path, JSON_BYTES)
    text_of(data, str(path))
    return Document(str(path), object_of(data, str(path)), "")


def _placed(path: Path, problems: list[Problem]) -> list[Problem]:
    """The problems of a JSON file with their lines, which are looked for only where there are any.

    A problem of another file, such as an impl's source, keeps its own.
    """
    if not problems:
        return []
    where = Document(str(path), None, "", lines_of(read_regular(path, JSON_BYTES)))
    placed = [replace(p, line=where.line(p.path)) if p.file == str(path) else p for p in problems]
    return sorted(placed, key=lambda p: p.line)


def _lines(path: Path) -> Iterator[Problem]:
    """A ledger: one JSON object a line."""
    rows = read_regular(path, JSON_BYTES).split(b"\n")
    for number, row in enumerate(rows, start=1):
        if not row.strip():
            continue
        try:
            value = parse_json(row, str(path))
            found = schema.problems(value, kind_of(Document(str(path), value, "")), file=str(path))
        except InputError as error:
            found = list(error.problems)
        for p in found:
            yield Problem(str(path), number, p.path, p.what, p.do, p.reason)


def _schema(path: Path) -> list[Problem]:
    value = object_of(read_regular(path, SCHEMA_BYTES), str(path))
    return meta.problems(value, schema.name_of(path), str(path))
