from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flashrt.document.canonical import canonical_bytes, digest_of
from flashrt.document.problem import InputError
from flashrt.receipt.store import Store
from flashrt_runtime.reason import Reason, Refusal


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def files(store):
    return sorted(p for p in store.root.rglob("*") if p.is_file())


def test_a_record_is_named_by_its_content(store):
    digest = store.put("plan", {"a": 1})
    assert store.path("plan", digest).read_bytes() == canonical_bytes({"a": 1, "digest": digest})
    assert store.get("plan", digest) == {"a": 1, "digest": digest}
    assert digest == digest_of({"a": 1})


def test_putting_again_changes_nothing(store):
    digest = store.put("plan", {"a": 1})
    before = store.path("plan", digest).stat()
    assert store.put("plan", store.get("plan", digest)) == digest
    after = store.path("plan", digest).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_file_that_is_not_what_its_name_says_is_named_and_left_alone(store):
    digest = store.put("plan", {"a": 1})
    path = store.path("plan", digest)
    path.write_bytes(b'{"a":2}')
    for attempt in (
        lambda: store.get("plan", digest),
        lambda: list(store.list("plan")),
        lambda: store.put("plan", {"a": 1}),
    ):
        with pytest.raises(Refusal) as caught:
            attempt()
        assert caught.value.reason is Reason.DIGEST
        assert str(path) in caught.value.subject
    assert path.read_bytes() == b'{"a":2}'


def test_a_file_under_another_digest_s_name_is_refused(store):
    first, second = store.put("plan", {"a": 1}), store.put("plan", {"a": 2})
    store.path("plan", first).write_bytes(store.path("plan", second).read_bytes())
    with pytest.raises(Refusal) as caught:
        store.get("plan", first)
    assert caught.value.reason is Reason.DIGEST


def test_a_file_that_is_not_json_is_refused_with_its_line(store):
    digest = store.put("plan", {"a": 1})
    store.path("plan", digest).write_bytes(b'{"a":1,\n"a":NaN}')
    with pytest.raises(InputError) as caught:
        store.get("plan", digest)
    assert str(store.path("plan", digest)) in str(caught.value)


def test_a_number_beyond_canonical_json_in_a_file_is_refused(store):
    digest = store.put("plan", {"a": 1})
    store.path("plan", digest).write_text(json.dumps({"a": 2**70, "digest": digest}))
    with pytest.raises(Refusal) as caught:
        store.get("plan", digest)
    assert caught.value.reason is Reason.DIGEST


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        ("plan", {"a": 1, "digest": "sha256:" + "0" * 64}, Reason.DIGEST),
        ("plan", {"a": float("nan")}, Reason.SCHEMA),
        ("plan", {"a": object()}, Reason.SCHEMA),
        ("qualification", {"kind": "preflight"}, Reason.CONFLICT),
        ("secrets", {"a": 1}, Reason.CONFLICT),
    ],
)
def test_a_body_that_does_not_belong_there_is_refused(store, kind, body, reason):
    with pytest.raises(Refusal) as caught:
        store.put(kind, body)
    assert caught.value.reason is reason
    assert files(store) == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "sha256:xyz", "sha256:" + "0" * 63, ""])
def test_a_name_that_is_no_digest_reaches_no_file(store, name):
    for call in (lambda: store.get("plan", name), lambda: store.table_path(name)):
        with pytest.raises(Refusal) as caught:
            call()
        assert caught.value.reason is Reason.DIGEST


def test_an_absent_record_is_refused(store):
    for call in (store.table_path, lambda d: store.get("plan", d)):
        with pytest.raises(Refusal) as caught:
            call("sha256:" + "0" * 64)
        assert caught.value.reason is Reason.DIGEST


def test_an_empty_store_lists_nothing(store):
    assert list(store.list("qualification")) == []
    assert store.live("sha256:" + "0" * 64) is None


def test_tables_are_kept_and_checked(store):
    digest = store.put_table(b"bytes")
    assert store.table_path(digest).read_bytes() == b"bytes"
    assert store.put_table(b"bytes") == digest
    store.table_path(digest).write_bytes(b"other")
    with pytest.raises(Refusal) as caught:
        store.table_path(digest)
    assert caught.value.reason is Reason.DIGEST


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_what_was_there_and_no_half_file(store, monkeypatch):
    kept = store.put("plan", {"a": 1})
    before = files(store)
    monkeypatch.setattr(os, "fsync", full)
    for call in (lambda: store.put("plan", {"a": 2}), lambda: store.put_table(b"x")):
        with pytest.raises(Refusal) as caught:
            call()
        assert caught.value.reason is Reason.STORAGE
        assert "No space left" in str(caught.value)
    assert files(store) == before
    monkeypatch.undo()
    assert store.get("plan", kept) == {"a": 1, "digest": kept}


def test_a_read_only_folder_is_refused(store, monkeypatch):
    def read_only(*_args, **_kwargs):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("builtins.open", read_only)
    with pytest.raises(Refusal) as caught:
        store.put("plan", {"a": 1})
    monkeypatch.undo()
    assert caught.value.reason is Reason.STORAGE
    assert files(store) == []


def test_a_root_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "store").write_text("occupied")
    with pytest.raises(Refusal) as caught:
        Store(tmp_path / "store").put("plan", {"a": 1})
    assert caught.value.reason is Reason.STORAGE
    assert (tmp_path / "store").read_text() == "occupied"


DIES = """
import os, sys
from pathlib import Path
from flashrt.receipt.store import Store
os.replace = lambda *_: os._exit(9)
Store(Path(sys.argv[1])).put("plan", {"a": 2})
"""

WRITES = """
import sys
from pathlib import Path
from flashrt.receipt.store import Store
store = Store(Path(sys.argv[1]))
for i in range(25):
    store.put("plan", {"worker": int(sys.argv[2]), "i": i})
    store.put("plan", {"shared": i})
"""


def start(program, *arguments):
    """A fresh interpreter: this one has threads of torch by now, and must not be forked."""
    return subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)])


def test_a_writer_killed_before_the_rename_leaves_no_half_record(store):
    kept = store.put("plan", {"a": 1})
    assert start(DIES, store.root).wait(60) == 9
    stray = [p for p in files(store) if p.name.endswith(".tmp")]
    assert len(stray) == 1
    assert [body["digest"] for body in store.list("plan")] == [kept]
    assert store.put("plan", {"a": 2}) in {body["digest"] for body in store.list("plan")}


def test_eight_processes_writing_at_once_lose_nothing(store):
    children = [start(WRITES, store.root, worker) for worker in range(8)]
    assert [child.wait(120) for child in children] == [0] * 8
    bodies = list(store.list("plan"))
    assert len(bodies) == 8 * 25 + 25
    written = {(b["worker"], b["i"]) for b in bodies if "worker" in b}
    assert written == {(w, i) for w in range(8) for i in range(25)}
    assert all(Path(p).suffix == ".json" for p in files(store))


def claim(
    cell, name, *, supersedes=None, revokes=(), ended="2026-01-31T12:00:00Z", state="unknown"
):
    return {
        "kind": "qualification",
        "name": name,
        "cell_digest": cell,
        "supersedes": supersedes,
        "revokes": list(revokes),
        "execution": {"ended_at": ended},
        "verdict": {"state": state},
    }


CELL, OTHER_CELL = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def test_the_live_receipt_is_the_one_that_nothing_supersedes(store):
    first = store.put("qualification", claim(CELL, "first"))
    second = store.put("qualification", claim(CELL, "second", supersedes=first))
    third = store.put("qualification", claim(CELL, "third", supersedes=second))
    store.put("qualification", claim(OTHER_CELL, "elsewhere"))
    assert store.live(CELL)["digest"] == third
    assert store.latest(CELL)["digest"] == third


def test_two_live_receipts_are_ambiguous_and_named(store):
    first = store.put("qualification", claim(CELL, "first"))
    second = store.put("qualification", claim(CELL, "second"))
    with pytest.raises(Refusal) as caught:
        store.live(CELL)
    assert caught.value.reason is Reason.AMBIGUOUS
    assert first in str(caught.value)
    assert second in str(caught.value)


def test_a_new_receipt_settles_what_two_writers_left_ambiguous(store):
    later = store.put("qualification", claim(CELL, "b", ended="2026-02-02T00:00:00Z"))
    earlier = store.put("qualification", claim(CELL, "a"))
    heads = [body["digest"] for body in store.heads(CELL)]
    assert heads == [earlier, later]
    new = claim(CELL, "new", supersedes=heads[-1], revokes=heads[:-1])
    third = store.put("qualification", new)
    assert store.live(CELL)["digest"] == third


def test_a_receipt_supersedes_only_within_its_cell(store):
    first = store.put("qualification", claim(CELL, "first"))
    store.put("qualification", claim(OTHER_CELL, "elsewhere", supersedes=first))
    assert store.live(CELL)["digest"] == first


def test_a_revoked_receipt_is_gone_and_revives_no_older_one(store):
    first = store.put("qualification", claim(CELL, "first"))
    second = store.put("qualification", claim(CELL, "second", supersedes=first))
    store.put("qualification", claim(OTHER_CELL, "withdrawal", revokes=[second]))
    assert store.live(CELL) is None


def test_earlier_attempts_are_listed_oldest_first_interrupted_ones_too(store):
    late = store.put("qualification", claim(CELL, "late", ended="2026-02-01T00:00:05.5Z"))
    early = store.put("qualification", claim(CELL, "early", ended="2026-02-01T00:00:05Z"))
    stopped = claim(CELL, "stopped", ended="2026-02-01T00:00:05.25Z")
    middle = store.put("incomplete", {**stopped, "kind": "incomplete"})
    store.put("qualification", claim(OTHER_CELL, "elsewhere"))
    found = store.attempts(CELL)
    assert [a["digest"] for a in found] == [early, middle, late]
    assert found[0] == {"digest": early, "state": "unknown", "ended_at": "2026-02-01T00:00:05Z"}
