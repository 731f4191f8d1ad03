"""tools/pin.py: new versions get a line, frozen ones never move, bindings follow."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from flashrt.document.canonical import sha256
from flashrt.spec.reader import read
from flashrt.spec.registry import check_lock
from flashrt.spec.skeleton import write

TOOL = Path(__file__).resolve().parents[2] / "tools" / "pin.py"
ZERO = "sha256:" + "0" * 64


@pytest.fixture(scope="module")
def pin() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pin_tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one structure, one binding and an empty lock."""
    write("structure", "mine", tmp_path)
    (tmp_path / "bindings").mkdir()
    binding = f'structure: mine@1\nspec_digest: "{ZERO}"\n'
    (tmp_path / "bindings" / "host.yaml").write_text(binding)
    (tmp_path / "receipts").mkdir()
    head = "# Frozen.\nschema: flashrt.digests/1\nstructures:\n"
    (tmp_path / "catalog" / "digests.lock").write_text(head)
    return tmp_path


def commit(tree: Path) -> None:
    for command in (["init"], ["add", "-A"], ["commit", "-m", "x"]):
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *command], cwd=tree, check=True, capture_output=True)


def test_a_new_version_gets_a_line_and_its_bindings_follow(pin: ModuleType, tree: Path) -> None:
    assert pin.main(tree) == 0
    assert check_lock(tree / "catalog") == []
    assert (tree / "catalog" / "digests.lock").read_text().startswith("# Frozen.\n")
    digest = read(tree / "catalog" / "mine").digest
    assert f'spec_digest: "{digest}"' in (tree / "bindings" / "host.yaml").read_text()
    before = (tree / "catalog" / "digests.lock").read_bytes()
    assert pin.main(tree) == 0
    assert (tree / "catalog" / "digests.lock").read_bytes() == before


def edit(tree: Path) -> None:
    file = tree / "catalog" / "mine" / "structure.yaml"
    file.write_text(file.read_text().replace("model width", "width of the model"))


def test_a_version_that_is_not_committed_may_move(pin: ModuleType, tree: Path) -> None:
    pin.main(tree)
    edit(tree)
    assert check_lock(tree / "catalog") != []
    assert pin.main(tree) == 0
    assert check_lock(tree / "catalog") == []


def test_a_committed_version_is_never_rewritten(
    pin: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pin.main(tree)
    commit(tree)
    before = (tree / "catalog" / "digests.lock").read_bytes()
    edit(tree)
    assert pin.main(tree) == 1
    assert "mine@1 is frozen" in capsys.readouterr().err
    assert (tree / "catalog" / "digests.lock").read_bytes() == before


def test_a_status_is_kept(pin: ModuleType, tree: Path) -> None:
    pin.main(tree)
    lock = tree / "catalog" / "digests.lock"
    lock.write_text(lock.read_text().replace("status: active", "status: coexisting"))
    edit(tree)
    assert pin.main(tree) == 0
    assert "status: coexisting" in lock.read_text()


def test_a_binding_that_earned_a_receipt_is_left_alone(pin: ModuleType, tree: Path) -> None:
    binding = tree / "bindings" / "host.yaml"
    (tree / "receipts" / "a.json").write_text(f'{{"digest": "{sha256(binding.read_bytes())}"}}')
    assert pin.main(tree) == 0
    assert ZERO in binding.read_text()


def test_a_spec_that_cannot_be_read_is_told_and_the_others_are_pinned(
    pin: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("structure", "other", tree)
    (tree / "catalog" / "other" / "reference.py").unlink()
    assert pin.main(tree) == 1
    assert "reference.py is not beside the spec" in capsys.readouterr().err
    assert "name: mine" in (tree / "catalog" / "digests.lock").read_text()


def test_each_digest_follows_its_own_structure(pin: ModuleType) -> None:
    text = (
        f"a:\n  structure: one@1\n  spec_digest: {ZERO}\n"
        f"b:\n  structure: gone@1\n  spec_digest: {ZERO}\n"
        f"c: {{structure: \"two@3\", spec_digest: '{ZERO}'}}\n"
        "d: {structure: one@1}\n"
        f'e: {{structure: two@3, spec_digest: "{ZERO}"}}\n'
    )
    one, two = ("sha256:" + digit * 64 for digit in "12")
    found = pin.pin(text, {"one@1": one, "two@3": two})
    assert found.count(one) == 1
    assert found.count(ZERO) == 2
    assert f'structure: two@3, spec_digest: "{two}"' in found
