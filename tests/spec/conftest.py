"""A catalog of two versions in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashrt.spec.lock import line_for
from flashrt.spec.reader import read
from flashrt.spec.skeleton import files


def make_structure(root: Path, name: str = "scaled") -> Path:
    """Write a valid structure below ``root`` and return its folder."""
    for path, text in files("structure", name).items():
        target = root / path.relative_to("catalog")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return root / name


def write_lock(root: Path, *lines: str) -> Path:
    """Write a lock of these entries and return it."""
    body = "schema: flashrt.digests/1\nstructures:\n" + "".join(f"  {line}\n" for line in lines)
    (root / "digests.lock").write_text(body)
    return root / "digests.lock"


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """``scaled@2`` beside ``scaled@1``, both in the lock."""
    root = tmp_path / "catalog"
    folder = make_structure(root)
    old = folder / "v1"
    old.mkdir()
    for name in ("structure.yaml", "reference.py"):
        (old / name).write_text((folder / name).read_text())
    text = (folder / "structure.yaml").read_text().replace("version: 1", "version: 2")
    (folder / "structure.yaml").write_text(text)
    first = line_for(read(old)).replace("active", "coexisting")
    write_lock(root, first, line_for(read(folder)))
    return root
