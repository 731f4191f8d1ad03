"""Structures by name: versions side by side, loud retirement, frozen bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashrt.binding.audit import audit
from flashrt.document.problem import InputError
from flashrt.spec.lock import line_for, read_lock
from flashrt.spec.reader import read
from flashrt.spec.registry import catalog_root, check_lock, load, root_for, structure_names
from flashrt_runtime.reason import Reason, Refusal


def relock(root: Path, *lines: str) -> None:
    body = "schema: flashrt.digests/1\nstructures:\n" + "".join(f"  {line}\n" for line in lines)
    (root / "digests.lock").write_text(body)


def retired(root: Path) -> str:
    old = line_for(read(root / "scaled" / "v1")).replace("status: active}", "")
    note = 'migration: {since: "0.2.0", why: a point moved, instead: scaled@2}}'
    return f"{old}status: retired, {note}"


def test_the_packaged_catalog_agrees_with_its_lock() -> None:
    assert check_lock() == []
    assert len(structure_names()) == 17


def test_two_versions_load_side_by_side(catalog: Path) -> None:
    assert load("scaled@1", root=catalog).version == 1
    assert load("scaled", 1, root=catalog).digest != load("scaled@2", root=catalog).digest
    assert load("scaled", root=catalog).version == 2
    assert check_lock(catalog) == []


@pytest.mark.parametrize(
    ("name", "words", "advice"),
    [
        ("decoder_fnn", "no structure of this name", "did you mean decoder_ffn"),
        ("decoder_ffn@9", "this version is not in the catalog", "there is decoder_ffn@1"),
        ("decoder_ffn@one", "'one' is not a version", "write decoder_ffn@1"),
        ("decoder_ffn@0", "'0' is not a version", "write decoder_ffn@1"),
        ("../decoder_ffn", "no structure of this name", "did you mean decoder_ffn"),
        ("", "no structure of this name", "there is "),
    ],
)
def test_an_unknown_name_is_a_refusal(name: str, words: str, advice: str) -> None:
    with pytest.raises(Refusal) as caught:
        load(name)
    assert caught.value.reason is Reason.STRUCTURE
    assert words in caught.value.what
    assert advice in caught.value.do


def test_two_versions_asked_for_at_once_are_refused() -> None:
    with pytest.raises(Refusal) as caught:
        load("decoder_ffn@1", 2)
    assert caught.value.reason is Reason.CONFLICT


def test_a_retired_version_says_when_why_and_what_instead(catalog: Path) -> None:
    relock(catalog, retired(catalog), line_for(read(catalog / "scaled")))
    with pytest.raises(Refusal) as caught:
        load("scaled@1", root=catalog)
    assert caught.value.reason is Reason.RETIRED
    assert "retired in 0.2.0: a point moved" in caught.value.what
    assert caught.value.do == "use scaled@2"
    assert load("scaled", root=catalog).version == 2


def test_a_retired_name_whose_files_are_gone_still_says_so(catalog: Path) -> None:
    gone = retired(catalog).replace("name: scaled", "name: older")
    relock(catalog, gone, line_for(read(catalog / "scaled")))
    for name in ("older", "older@1"):
        with pytest.raises(Refusal) as caught:
            load(name, root=catalog)
        assert caught.value.reason is Reason.RETIRED


@pytest.mark.parametrize("file", ["structure.yaml", "reference.py"])
def test_bytes_that_moved_are_refused_and_reported(catalog: Path, file: str) -> None:
    path = catalog / "scaled" / file
    path.write_bytes(path.read_bytes() + b"# an editorial change\n")
    with pytest.raises(InputError) as caught:
        load("scaled", root=catalog)
    assert caught.value.reason is Reason.STALE_SPEC
    assert "v2/" in caught.value.do
    assert [p.reason for p in check_lock(catalog)] == [Reason.STALE_SPEC]
    assert load("scaled@1", root=catalog).version == 1


def test_a_spec_the_lock_does_not_know_comes_with_the_line_to_add(catalog: Path) -> None:
    relock(catalog, line_for(read(catalog / "scaled")))
    found = check_lock(catalog)
    assert len(found) == 1
    assert line_for(read(catalog / "scaled" / "v1")) in found[0].do


def test_a_live_version_whose_file_is_gone_is_reported(catalog: Path) -> None:
    lines = [line_for(read(catalog / "scaled")), line_for(read(catalog / "scaled" / "v1"))]
    relock(catalog, lines[0], lines[1].replace("active", "coexisting"))
    (catalog / "scaled" / "v1" / "structure.yaml").unlink()
    found = check_lock(catalog)
    assert "scaled@1 is listed as coexisting" in found[0].what
    assert found[0].line == 4


def test_a_catalog_without_a_lock_is_reported(catalog: Path) -> None:
    (catalog / "digests.lock").unlink()
    assert "has no digests.lock" in check_lock(catalog)[0].what
    assert load("scaled", root=catalog).version == 2


def test_locks_that_contradict_themselves_are_refused(catalog: Path) -> None:
    new = line_for(read(catalog / "scaled"))
    relock(catalog, new, new)
    with pytest.raises(InputError, match="listed twice"):
        read_lock(catalog)
    old = line_for(read(catalog / "scaled" / "v1"))
    relock(catalog, new, old)
    with pytest.raises(InputError, match="two active versions"):
        read_lock(catalog)
    relock(catalog, retired(catalog))
    with pytest.raises(InputError, match="scaled@2, which is not live"):
        read_lock(catalog)
    relock(catalog, old.replace("status: active", "status: retired"))
    with pytest.raises(InputError, match="migration"):
        read_lock(catalog)
    assert check_lock(catalog)[0].file.endswith("digests.lock")


def test_a_callers_catalog_comes_before_the_packaged_one(catalog: Path) -> None:
    assert root_for("scaled@1", [catalog]) == catalog
    assert root_for("decoder_ffn@1", [catalog]) is None
    assert root_for("../catalog", [catalog]) is None


def test_a_path_loads_that_file(catalog: Path) -> None:
    assert load(catalog / "scaled" / "v1").id == "scaled@1"
    assert load(catalog_root() / "qkv_pack" / "structure.yaml").id == "qkv_pack@1"


def test_a_bad_entry_of_a_lock_hides_nothing_else(catalog: Path) -> None:
    new = line_for(read(catalog / "scaled"))
    old = line_for(read(catalog / "scaled" / "v1")).replace("active", "coexisting")
    stale = new.replace(read(catalog / "scaled").digest, "sha256:" + "0" * 64)
    gone = new.replace("scaled", "gone")
    relock(catalog, new, stale, old, gone, gone.replace("version: 2", "version: x"))
    said = [(p.line, p.what) for p in check_lock(catalog)]
    assert [line for line, what in said if "listed twice" in what] == [4]
    assert [line for line, what in said if "gone@2 is listed as active" in what] == [6]
    assert [line for line, what in said if "'x' is not of type" in what] == [7]
    assert any("froze sha256:0000" in what for _, what in said)
    audited = audit([catalog / "digests.lock"])[0].problems
    assert [(p.line, p.what) for p in audited] == said
    with pytest.raises(InputError, match="listed twice"):
        load("scaled", root=catalog)


@pytest.mark.parametrize("body", ["structures: 5\n", "structures: [5, {}]\n", "other: 1\n"])
def test_a_lock_that_is_none_is_a_problem_and_not_a_crash(catalog: Path, body: str) -> None:
    (catalog / "digests.lock").write_text(f"schema: flashrt.digests/1\n{body}")
    found = check_lock(catalog)
    assert found[0].file.endswith("digests.lock")
    assert any("scaled@2 is not in digests.lock" in p.what for p in found)
