from __future__ import annotations

import json

import pytest

from flashrt.document.canonical import canonical_bytes, digest_of, seal
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


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("qualification", "$: 'cell' is a required property"),
        ("preflight", "$: 'cell' is a required property"),
        ("incomplete", "$: 'cell' is a required property"),
        ("revocation", "$: 'revokes' is a required property"),
    ],
)
def test_a_whole_record_of_another_shape_is_refused_by_name(store, kind, named):
    stranger = seal({"kind": kind, "verdict": [], "execution": None})
    path = store.path(kind, stranger["digest"])
    path.parent.mkdir(parents=True)
    path.write_bytes(canonical_bytes(stranger))
    for call in (lambda: list(store.list(kind)), lambda: store.get(kind, stranger["digest"])):
        with pytest.raises(InputError) as caught:
            call()
        assert caught.value.reason is Reason.SCHEMA
        assert {problem.file for problem in caught.value.problems} == {str(path)}
        assert named in str(caught.value)


def test_a_record_among_those_of_another_kind_is_refused(store, factory):
    record = factory.unmeasured("incomplete")
    path = store.path("preflight", record["digest"])
    path.parent.mkdir(parents=True)
    path.write_bytes(canonical_bytes(record))
    with pytest.raises(Refusal) as caught:
        list(store.list("preflight"))
    assert (caught.value.reason, caught.value.subject) == (Reason.DIGEST, str(path))


@pytest.mark.parametrize("body", [{"points": 3}, {"kind": "calibration", "points": []}, {}])
def test_a_calibration_of_another_shape_is_refused_by_its_digest_too(store, body):
    digest = store.put("calibration", body)
    with pytest.raises(InputError, match="required property") as caught:
        store.get("calibration", digest)
    assert str(store.path("calibration", digest)) in str(caught.value)
    assert "flashrt schema calibration_receipt" in str(caught.value)


def test_a_calibration_of_another_shape_is_refused_where_one_is_looked_for(store):
    digest = store.put("calibration", {"points": 3})
    with pytest.raises(InputError) as caught:
        list(store.list("calibration"))
    assert caught.value.reason is Reason.SCHEMA
    assert str(store.path("calibration", digest)) in str(caught.value)
