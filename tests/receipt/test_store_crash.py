"""Writers that are killed, disks that are full, folders that cannot be written: nothing is lost."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flashrt.receipt.store import Store
from flashrt_runtime.reason import Reason, Refusal


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def files(store):
    return sorted(p for p in store.root.rglob("*") if p.is_file())


def failing(code):
    def fail(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_leaves_what_was_there_and_no_half_file(store, monkeypatch, step, code):
    kept = store.put("plan", {"a": 1})
    before = files(store)
    monkeypatch.setattr(os, step, failing(code))
    for call in (lambda: store.put("plan", {"a": 2}), lambda: store.put_table(b"x")):
        with pytest.raises(Refusal) as caught:
            call()
        assert caught.value.reason is Reason.STORAGE
        assert os.strerror(code) in str(caught.value)
    assert files(store) == before
    monkeypatch.undo()
    assert store.get("plan", kept) == {"a": 1, "digest": kept}


def test_a_read_only_folder_is_refused(store, monkeypatch):
    monkeypatch.setattr("builtins.open", failing(errno.EROFS))
    with pytest.raises(Refusal) as caught:
        store.put("plan", {"a": 1})
    monkeypatch.undo()
    assert caught.value.reason is Reason.STORAGE
    assert files(store) == []


def test_a_folder_without_write_permission_is_refused(store, tmp_path):
    kept = store.put("plan", {"a": 1})
    folder = store.root / "plan"
    folder.chmod(0o500)
    try:
        assert start(DENIED, store.root).wait(60) == 5
    finally:
        folder.chmod(0o700)
    assert [body["digest"] for body in store.list("plan")] == [kept]


def test_a_root_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "store").write_text("occupied")
    with pytest.raises(Refusal) as caught:
        Store(tmp_path / "store").put("plan", {"a": 1})
    assert caught.value.reason is Reason.STORAGE
    assert (tmp_path / "store").read_text() == "occupied"


# Root may write anywhere, so the writer gives that up: after it has loaded what it needs and stands
# in the store, because the folders above may be closed to others. The first record is there.
DENIED = """
import os, sys
from pathlib import Path
from flashrt.receipt.store import Store
from flashrt_runtime.reason import Reason, Refusal
os.chdir(sys.argv[1])
Store(Path(".")).put("plan", {"a": 1})
if os.geteuid() == 0:
    os.chown(".", 65534, 65534), os.chown("plan", 65534, 65534)
    os.setresuid(65534, 65534, 65534)
try:
    Store(Path(".")).put("plan", {"a": 2})
except Refusal as refusal:
    os._exit(5 if refusal.reason is Reason.STORAGE else 6)
os._exit(7)
"""

KILLED = """
import os, signal, sys
from pathlib import Path
from flashrt.receipt.store import Store
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
Store(Path(sys.argv[1])).put("plan", {"a": 2})
"""

# Twenty-five records of its own and as many that all write. On its first run it is killed between
# write and rename at a record of its own choosing; on the second the disk is full there.
WRITES = """
import errno, os, signal, sys
from pathlib import Path
from flashrt.receipt.store import Store
from flashrt_runtime.reason import Reason, Refusal
store, worker, run = Store(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
rename, bad = os.replace, (7 * worker + 5) % 50
renames = 0

def replace(*names):
    global renames
    renames += 1
    if run == 0 and renames == bad % 25 + 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if run == 1 and renames == 1:
        raise OSError(errno.ENOSPC, "No space left on device")
    rename(*names)

os.replace = replace
for i in range(25):
    for body in ({"worker": worker, "i": i}, {"shared": i}):
        try:
            store.put("plan", body)
        except Refusal as refusal:
            assert refusal.reason is Reason.STORAGE
            store.put("plan", body)
"""


def start(program, *arguments):
    """A fresh interpreter: this one has threads of torch by now, and must not be forked."""
    return subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)])


def strays(store):
    return [p for p in files(store) if p.name.endswith(".tmp")]


def test_a_writer_killed_before_the_rename_leaves_no_half_record(store):
    kept = store.put("plan", {"a": 1})
    assert start(KILLED, store.root).wait(60) == -9
    assert len(strays(store)) == 1
    assert [body["digest"] for body in store.list("plan")] == [kept]
    assert store.put("plan", {"a": 2}) in {body["digest"] for body in store.list("plan")}


def test_eight_writers_killed_and_out_of_space_lose_none_of_two_hundred(store):
    """200 of 200: every run but the last of a worker ends badly, all of them at the same time."""
    first = [start(WRITES, store.root, worker, 0) for worker in range(8)]
    assert [child.wait(120) for child in first] == [-9] * 8
    half = len(list(store.list("plan")))
    assert 0 < half < 225
    assert len(strays(store)) == 8
    again = [start(WRITES, store.root, worker, 1) for worker in range(8)]
    assert [child.wait(120) for child in again] == [0] * 8
    bodies = list(store.list("plan"))
    assert len(bodies) == 8 * 25 + 25
    written = {(b["worker"], b["i"]) for b in bodies if "worker" in b}
    assert written == {(w, i) for w in range(8) for i in range(25)}
    assert all(Path(p).suffix == ".json" for p in files(store) if p not in strays(store))
