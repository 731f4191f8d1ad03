"""Everything ``flashrt validate`` checks: schema, meaning and digests of each kind of file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

from flashrt.binding.reader import bindings_root, load_binding
from flashrt.document import schema
from flashrt.document.canonical import digest_of, parse_json, read_json
from flashrt.document.problem import InputError, Problem
from flashrt.document.read import read_regular
from flashrt.document.yaml_source import MAX_BYTES, Document, load_yaml, parse_yaml
from flashrt.spec import impl_manifest, reader, retirement
from flashrt.spec.lock import FILE as LOCK_FILE
from flashrt.spec.lock import read_lock
from flashrt.spec.registry import catalog_root, check_lock, spec_files
from flashrt.spec.trial import try_reference
from flashrt_runtime.reason import Reason

SUFFIXES = {".yaml", ".yml", ".json", ".jsonl", ".lock"}


@dataclass(frozen=True)
class Checked:
    """One file, what it was taken for, what is wrong and what is only to be noted."""

    file: str
    kind: str
    problems: tuple[Problem, ...] = ()
    notices: tuple[Problem, ...] = ()


def impls_root() -> Path:
    """The packaged impls' folder."""
    return Path(str(resources.files("flashrt_runtime.impls")))


def schemas_root() -> Path:
    """The packaged schemas' folder."""
    return Path(str(resources.files("flashrt.schemas")))


def receipts_root() -> Path:
    """The folder of receipts that this tree has earned (absent in an installed package)."""
    return catalog_root().parent / "receipts"


def packaged() -> list[Path]:
    """Every file of this tree that has a schema, and the schemas."""
    return [
        *sorted(schemas_root().glob("*.schema.json")),
        *spec_files(),
        catalog_root() / LOCK_FILE,
        *sorted(bindings_root().glob("*.yaml")),
        *sorted(impls_root().glob("*/*.json")),
        *sorted(p for p in receipts_root().rglob("*.json")),
    ]


def audit(paths: Sequence[Path] = (), catalogs: Sequence[Path] = ()) -> list[Checked]:
    """Check files and folders, or everything of this tree when none is given.

    ``catalogs`` are folders whose structures may be named and whose references may run. One
    :class:`Checked` per file, in order; in a folder, JSON that is not ours is passed over.
    """
    if not paths:
        return [_check(_short(path), catalogs) for path in packaged()]
    checked: list[Checked] = []
    for path in paths:
        if path.is_dir():
            inside = [f for f in (_check_in(p, catalogs) for p in _files(path)) if f]
            if not inside:
                what = "the folder holds no file that flashrt knows"
                inside = [Checked(str(path), "folder", (_problem(str(path), what),))]
            checked += inside
        else:
            checked.append(_check(path, catalogs))
    return checked


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in SUFFIXES and path.is_file() and "__pycache__" not in path.parts:
            yield path


def _short(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _problem(file: str, what: str, do: str = "", reason: Reason = Reason.SCHEMA) -> Problem:
    return Problem(file, 1, "$", what, do, reason)


def _check_in(path: Path, catalogs: Sequence[Path]) -> Checked | None:
    """A file of a folder; None for JSON that does not claim to be ours."""
    if path.suffix == ".json" and not path.name.endswith(".schema.json"):
        try:
            claim = read_json(path).get("schema")
        except InputError as error:
            return Checked(str(path), "json", error.problems)
        if not isinstance(claim, str) or not claim.startswith("flashrt."):
            return None
    return _check(path, catalogs)


def _check(path: Path, catalogs: Sequence[Path]) -> Checked:
    if path.name.endswith(".schema.json"):
        return Checked(str(path), "schema", tuple(_schema(path)))
    try:
        if path.suffix == ".jsonl":
            return Checked(str(path), "ledger", tuple(_lines(path)))
        document = load_yaml(path) if path.suffix != ".json" else _json(path)
        kind = kind_of(document)
    except InputError as error:
        return Checked(str(path), path.suffix.removeprefix(".") or "file", error.problems)
    found = schema.problems(document.value, kind, document)
    if found:
        return Checked(str(path), kind, tuple(found))
    try:
        return _meaning(path, kind, document, catalogs)
    except InputError as error:
        return Checked(str(path), kind, error.problems)


def _meaning(path: Path, kind: str, document: Document, catalogs: Sequence[Path]) -> Checked:
    problems: list[Problem] = []
    notices: tuple[Problem, ...] = ()
    if kind == "structure":
        problems = try_reference(reader.read(path), catalogs)
    elif kind == "region_binding":
        notices = load_binding(path, catalogs=catalogs).notices
    elif kind == "impl_manifest":
        problems = list(impl_manifest.misfits(document, path, catalogs))
    elif kind == "digests_lock":
        problems = _lock(path)
    elif "digest" in document.value:
        problems = list(_digest(path, document))
    return Checked(str(path), kind, tuple(problems), notices)


def _lock(path: Path) -> list[Problem]:
    found = check_lock(path.parent)
    lock = read_lock(path.parent)
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
    """A JSON file with the lines of its paths, as far as they can be told."""
    value = read_json(path)
    data = path.read_bytes()
    lines: Mapping[str, int] = {}
    if len(data) <= MAX_BYTES:
        try:
            lines = parse_yaml(data, str(path)).lines
        except InputError:
            lines = {}
    return Document(str(path), value, "", dict(lines))


def _lines(path: Path) -> Iterator[Problem]:
    """A ledger: one JSON object a line."""
    rows = read_regular(path, MAX_BYTES).splitlines()
    for number, row in enumerate(rows, start=1):
        if not row.strip():
            continue
        try:
            value = parse_json(row, str(path))
            kind = kind_of(Document(str(path), value, ""))
        except InputError as error:
            for p in error.problems:
                yield Problem(str(path), number, p.path, p.what, p.do, p.reason)
            continue
        for p in schema.problems(value, kind, file=str(path)):
            yield Problem(str(path), number, p.path, p.what, p.do, p.reason)


def kind_of(document: Document) -> str:
    """The name of the schema a document says it satisfies, by its ``schema`` and ``kind`` fields.

    Raises :class:`InputError` for a document that names none of ours.
    """
    value = document.value
    claim = value.get("schema") if isinstance(value, dict) else None
    known = _claims()
    fits = [name for name, (const, kinds) in known.items() if const == claim]
    if len(fits) > 1:
        kind = value.get("kind")
        fits = [name for name in fits if kind in known[name][1]]
    if len(fits) == 1:
        return fits[0]
    consts = sorted({const for const, _ in known.values()})
    what = (
        "it does not say which schema it satisfies"
        if claim is None
        else (f"{claim!r} is not a schema that flashrt knows")
    )
    do = "add schema: one of " + ", ".join(consts)
    if len(fits) > 1 or (claim in consts):
        what, do = f"no schema of {claim!r} has kind {value.get('kind')!r}", "check kind"
    raise InputError(document.file, document.line("$.schema"), "$.schema", what, do)


@lru_cache(maxsize=1)
def _claims() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Each schema's own ``schema`` constant and the kinds it is for."""
    found = {}
    for name in schema.schema_names():
        fields = json.loads(schema.schema_text(name)).get("properties", {})
        const = fields.get("schema", {}).get("const")
        kind = fields.get("kind", {})
        if const:
            kinds = kind.get("enum", [kind["const"]] if "const" in kind else [])
            found[name] = (const, tuple(kinds))
    return found


def _schema(path: Path) -> Iterator[Problem]:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        value = read_json(path)
        Draft202012Validator.check_schema(value)
    except InputError as error:
        yield from error.problems
        return
    except SchemaError as error:
        yield Problem(str(path), 1, schema.json_path(error), error.message, "", Reason.SCHEMA)
        return
    name = path.name.removesuffix(".schema.json")
    if value.get("$id") != f"urn:flashrt:schema:{name}:1":
        yield _problem(str(path), f"$id is not urn:flashrt:schema:{name}:1", "they must agree")
