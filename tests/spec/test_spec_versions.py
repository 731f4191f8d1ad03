"""Two versions of one name side by side, and one byte that moved, as the check of CI sees it."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from flashrt.document.problem import InputError
from flashrt.receipt.spec_gates import gates_of
from flashrt.receipt.verify import verify
from flashrt.spec.harness import draw, gate
from flashrt.spec.lock import FILE, Lock, Status, line_for, read_lock
from flashrt.spec.reader import read
from flashrt.spec.reference import load_reference
from flashrt.spec.registry import catalog_root, check_lock, load, spec_files
from flashrt.spec.retirement import User, refused
from flashrt_cli.main import app
from flashrt_runtime.reason import Reason, Refusal

FACTORY = Path(__file__).parent.parent / "receipt" / "receipt_factory.py"


@pytest.fixture(scope="session")
def factory() -> ModuleType:
    found = importlib.util.spec_from_file_location("receipts_of_versions", FACTORY)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture
def doubled(catalog: Path) -> Path:
    """``scaled@2`` computes something else than ``scaled@1``, and has a wider gate."""
    folder = catalog / "scaled"
    code = (folder / "reference.py").read_text()
    (folder / "reference.py").write_text(code.replace("y = x.float()", "y = 2.0 * x.float()"))
    text = (folder / "structure.yaml").read_text()
    (folder / "structure.yaml").write_text(text.replace("warn: 0.995", "warn: 0.99"))
    lines = [line_for(read(p)) for p in spec_files(catalog)]
    old = [line.replace("active", "coexisting") for line in lines if "version: 1" in line]
    new = [line for line in lines if "version: 2" in line]
    body = "".join(f"  {line}\n" for line in (*old, *new))
    (catalog / FILE).write_text(f"schema: flashrt.digests/1\nstructures:\n{body}")
    return catalog


def test_each_version_is_gated_by_its_own_reference(doubled: Path) -> None:
    one, two = (load_reference(load(f"scaled@{n}", root=doubled), [doubled]) for n in (1, 2))
    assert gate(one, one.run, 2).passed
    assert gate(two, two.run, 2).passed
    assert not gate(two, one.run, 2).passed
    assert next(draw(one.spec, 1)).spec.gates.bands["warn"] == 0.995
    assert check_lock(doubled) == []


def receipt_on(factory: ModuleType, catalog: Path, version: int) -> dict:
    """A receipt earned on the bytes of one version."""
    spec = load("scaled", version, root=catalog)
    named = {"name": spec.name, "version": version, "spec_digest": spec.digest}
    impl = {**factory.cell()["impls"][0], "structure": spec.id}
    return factory.receipt(cell=factory.cell(structures=[named], impls=[impl]))


def test_a_receipt_of_either_version_holds_for_its_own(doubled: Path, factory: ModuleType) -> None:
    def gates(name: str, version: int):
        known = factory.gates(name, version)
        return known or gates_of(load(name, version, root=doubled))

    bodies = [receipt_on(factory, doubled, n) for n in (1, 2)]
    assert [verify(body, gates) for body in bodies] == [[], []]
    assert bodies[0]["cell_digest"] != bodies[1]["cell_digest"]
    cell = bodies[0]["cell"]
    named = [{**cell["structures"][0], "version": 2}]
    impls = [{**cell["impls"][0], "structure": "scaled@2"}]
    crossed = factory.receipt(cell={**cell, "structures": named, "impls": impls})
    assert [b.reason for b in verify(crossed, gates)] == [Reason.STALE_SPEC]


def test_only_the_successors_receipt_lets_a_version_retire(
    doubled: Path, factory: ModuleType
) -> None:
    old, new = (receipt_on(factory, doubled, n) for n in (1, 2))
    lock = retired(doubled)
    user = User("b.yaml", 7, "$.regions.r.structure", "binding", "smollm2", "scaled@2")
    assert [p.reason for p in refused(lock, [user], [old])] == [Reason.RETIRED]
    assert list(refused(lock, [user], [old, new])) == []
    with pytest.raises(Refusal) as caught:
        load("scaled@1", root=doubled)
    assert (caught.value.reason, caught.value.do) == (Reason.RETIRED, "use scaled@2")


def retired(catalog: Path) -> Lock:
    text = (catalog / FILE).read_text()
    note = 'retired, migration: {since: "0.2.0", why: it doubled, instead: scaled@2}'
    (catalog / FILE).write_text(text.replace("coexisting", note))
    lock = read_lock(catalog)
    assert lock is not None
    assert [e.status for e in lock.entries] == [Status.RETIRED, Status.ACTIVE]
    return lock


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The packaged catalog, in a folder of its own."""
    target = tmp_path / "catalog"
    shutil.copytree(catalog_root(), target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    return target


FROZEN = sorted(
    str(path.relative_to(catalog_root()))
    for spec in spec_files()
    for path in (spec, spec.parent / "reference.py")
    if path.is_file()
)


@pytest.mark.parametrize("name", FROZEN)
def test_one_byte_that_moved_names_the_file_and_the_rule(copied: Path, name: str) -> None:
    file = copied / name
    data = bytearray(file.read_bytes())
    # A letter of a sentence for people: what the file means stays the same.
    at = data.index(b"summary: >-") + 15 if name.endswith(".yaml") else data.index(b'"""') + 4
    data[at] ^= 0x20 if chr(data[at]).isalpha() else 0x01
    file.write_bytes(bytes(data))
    found = check_lock(copied)
    assert [(p.file, p.reason) for p in found] == [(str(file), Reason.STALE_SPEC)]
    with pytest.raises(InputError) as caught:
        load(file.parent.name, root=copied)
    assert caught.value.reason is Reason.STALE_SPEC


def test_the_check_of_ci_fails_on_one_byte(copied: Path) -> None:
    lock, file = copied / FILE, copied / "qkv_pack" / "structure.yaml"
    arguments = ["validate", "--format", "github", str(lock)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    file.write_bytes(file.read_bytes().replace(b"Sibling query", b"sibling query"))
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code != 0
    assert str(file) in done.output
    assert f"{FILE} froze sha256:" in done.output
    assert Reason.STALE_SPEC.code in done.output
