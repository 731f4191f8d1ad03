"""The files that ``flashrt validate`` looks at, and those it must not follow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from flashrt.binding.reader import bindings_root
from flashrt.document.problem import InputError
from flashrt.spec.lock import FILE as LOCK_FILE
from flashrt.spec.registry import catalog_root, spec_files

SUFFIXES = (".yaml", ".yml", ".json", ".jsonl", ".lock")
_PASSED = {"__pycache__", "node_modules"}


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
        *sorted(schemas_root().glob("lab/*.schema.json")),
        *spec_files(),
        catalog_root() / LOCK_FILE,
        catalog_root() / "ontology.yaml",
        *sorted(catalog_root().glob("designs/*.yaml")),
        *sorted(bindings_root().glob("*.yaml")),
        *sorted(impls_root().glob("*/*.json")),
        *sorted(p for p in receipts_root().rglob("*.json")),
    ]


def below(folder: Path) -> Iterator[Path]:
    """The files of a folder that flashrt may know, sorted.

    Hidden files and folders, caches and linked folders are passed over; a linked file is not, so
    that :func:`inside` can refuse it. Raises :class:`InputError` for a folder that cannot be read.
    """

    def unreadable(error: OSError) -> None:
        where = str(error.filename or folder)
        raise InputError(where, 1, "$", error.strerror or str(error), "make it readable")

    found: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = [n for n in folders if n not in _PASSED and not n.startswith(".")]
        found += [
            Path(root, name)
            for name in names
            if name.endswith(SUFFIXES) and not name.startswith(".")
        ]
    yield from sorted(found)


def tree_of(path: Path) -> Path:
    """The folder that a named file may not lead out of: the working one, or the file's own."""
    here = Path.cwd()
    return here if Path(os.path.abspath(path)).is_relative_to(here) else path.parent


def inside(path: Path, tree: Path) -> None:
    """Raise :class:`InputError` where a link leads out of the tree; what is there is not read."""
    real, root = os.path.realpath(path), os.path.realpath(tree)
    if not Path(real).is_relative_to(root):
        do = "copy the file, or name the one it leads to"
        raise InputError(str(path), 1, "$", f"a link that leads out of {tree}", do)
