"""The store never overwrites, and any number of writers may write at once."""

import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from flashrt.document.atomic import write_once
from flashrt.document.canonical import canonical_bytes, read_json, seal
from flashrt.document.problem import InputError
from flashrt.lab.execution.store import ExecutionStore
from flashrt_runtime.reason import Reason, Refusal


def put_many(root: str) -> list[str]:
    store = ExecutionStore(Path(root))
    return [store.put({"n": n % 3}).name for n in range(12)]


def test_equal_content_has_one_file_and_one_name(tmp_path):
    store = ExecutionStore(tmp_path)
    path = store.put({"a": 1})
    before = path.stat()
    assert store.put({"a": 1}) == path
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert list(store.list()) == [path]
    assert read_json(path) == seal({"a": 1})


def test_a_record_that_could_not_be_read_again_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("flashrt.lab.execution.store.MAX_BYTES", 100)
    with pytest.raises(Refusal, match="could not be read again") as found:
        ExecutionStore(tmp_path).put({"a": "x" * 100})
    assert found.value.reason is Reason.STORAGE
    assert list(tmp_path.iterdir()) == []


def test_writers_at_once_leave_whole_files_and_nothing_else(tmp_path):
    with ProcessPoolExecutor(2) as pool:
        names = [set(found) for found in pool.map(put_many, [str(tmp_path)] * 4)]
    assert len(set.union(*names)) == 3
    assert sorted(os.listdir(tmp_path)) == sorted(names[0])
    for path in ExecutionStore(tmp_path).list():
        assert f"{read_json(path)['digest']}" == f"sha256:{path.stem}"


def test_another_file_of_the_name_stays_as_it_is(tmp_path):
    store = ExecutionStore(tmp_path)
    path = store.put({"a": 1})
    path.write_bytes(b"mine")
    with pytest.raises(Refusal, match="stays as it is") as found:
        store.put({"a": 1})
    assert found.value.reason is Reason.DIGEST
    assert path.read_bytes() == b"mine"


def test_a_writer_that_is_overtaken_compares_and_replaces_nothing(tmp_path, monkeypatch):
    path = tmp_path / "name"
    link = os.link

    def overtaken(source, target):
        Path(target).write_bytes(b"first")
        return link(source, target)

    monkeypatch.setattr(os, "link", overtaken)
    with pytest.raises(Refusal, match="stays as it is"):
        write_once(path, b"second")
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["name"]


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Refusal) as found:
        ExecutionStore(tmp_path / "file").put({"a": 1})
    assert found.value.reason is Reason.STORAGE
    assert os.listdir(tmp_path) == ["file"]


def test_a_record_is_found_by_path_digest_and_beginning(tmp_path):
    store = ExecutionStore(tmp_path)
    path = store.put({"a": 1})
    for said in (str(path), f"sha256:{path.stem}", path.stem, path.stem[:8]):
        assert store.find(said) == path
    for said in (path.stem[:3], "0" * 64, "nothing"):
        with pytest.raises(InputError) as found:
            store.find(said)
        assert found.value.reason is Reason.UNKNOWN_CELL


def test_two_records_of_one_beginning_are_told_apart(tmp_path):
    for ending in "ab":
        body = seal({"x": ending})
        (tmp_path / f"{'0' * 63}{ending}.json").write_bytes(canonical_bytes(body))
    with pytest.raises(InputError, match="2 records begin so") as found:
        ExecutionStore(tmp_path).find("0" * 10)
    assert found.value.reason is Reason.AMBIGUOUS
