"""Skeletons: valid as written, and nothing is ever overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashrt.binding.audit import audit
from flashrt.spec.model import Kind
from flashrt.spec.registry import load, structure_names
from flashrt.spec.skeleton import write
from flashrt_runtime.reason import Reason, Refusal

REGIONS = [n for n in structure_names() if load(n).kind is Kind.REGION]
CASES = [("structure", "mine"), ("binding", "mine"), ("impl", "decoder_ffn/mine")]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_what_is_written_validates(tmp_path: Path, kind: str, name: str) -> None:
    made = write(kind, name, tmp_path)
    assert made
    assert all(p.is_file() for p in made)
    checked = audit([tmp_path], [tmp_path / "catalog"])
    assert checked
    assert [p for c in checked for p in c.problems] == []


@pytest.mark.parametrize("structure", REGIONS)
def test_an_impl_of_any_region_validates_as_written(tmp_path: Path, structure: str) -> None:
    made = write("impl", f"{structure}/mine", tmp_path)
    checked = audit([tmp_path])
    assert {c.file for c in checked} == {str(made[1])}
    assert [p for c in checked for p in c.problems] == []


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_nothing_is_overwritten(tmp_path: Path, kind: str, name: str) -> None:
    made = write(kind, name, tmp_path)
    made[-1].write_text("mine")
    made[0].unlink()
    if len(made) == 1:
        made[0].write_text("mine")
    with pytest.raises(Refusal) as caught:
        write(kind, name, tmp_path)
    assert caught.value.reason is Reason.CONFLICT
    assert made[-1].read_text() == "mine"
    assert len(made) == 1 or not made[0].exists()


def test_a_dangling_link_counts_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "bindings").mkdir()
    (tmp_path / "bindings" / "mine.yaml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(Refusal) as caught:
        write("binding", "mine", tmp_path)
    assert caught.value.reason is Reason.CONFLICT
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("kernel", "mine", Reason.CONFLICT),
        ("structure", "../mine", Reason.CONFLICT),
        ("structure", "Mine", Reason.CONFLICT),
        ("binding", "a/b", Reason.CONFLICT),
        ("impl", "mine", Reason.CONFLICT),
        ("impl", "no_such_structure/mine", Reason.STRUCTURE),
        ("impl", "decoder_ffn/../../mine", Reason.CONFLICT),
    ],
)
def test_names_and_kinds_that_cannot_be_are_refused(
    tmp_path: Path, kind: str, name: str, reason: Reason
) -> None:
    with pytest.raises(Refusal) as caught:
        write(kind, name, tmp_path)
    assert caught.value.reason is reason
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Refusal) as caught:
        write("structure", "mine", tmp_path / "file")
    assert caught.value.reason is Reason.STORAGE
    assert (tmp_path / "file").read_text() == "x"


def test_the_skeletons_impl_refuses_until_it_is_written(tmp_path: Path) -> None:
    source = write("impl", "linear_proj/mine", tmp_path)[0].read_text()
    scope: dict[str, object] = {}
    exec(compile(source, "mine.py", "exec"), scope)
    assert callable(scope["bind"])
    assert "does not build the form" in source
