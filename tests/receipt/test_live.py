"""Which receipt of a cell counts, what was tried before it, and what was withdrawn."""

from __future__ import annotations

import copy

import pytest

from flashrt.document.canonical import seal
from flashrt.document.problem import InputError
from flashrt.receipt.store import Store
from flashrt_runtime.reason import Reason, Refusal

CELL, OTHER_CELL = "sha256:" + "a" * 64, "sha256:" + "b" * 64
AT = "2026-02-03T00:00:00Z"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture(scope="module")
def whole(factory):
    return factory.receipt()


@pytest.fixture
def claim(whole):
    """A receipt of a cell that is told apart by its execution's name; nobody verifies it here."""

    def make(cell, name, *, supersedes=None, revokes=(), ended="2026-01-31T12:00:00Z"):
        body = copy.deepcopy(whole)
        body |= {"cell_digest": cell, "supersedes": supersedes, "revokes": list(revokes)}
        body["execution"] |= {"id": name, "ended_at": ended}
        del body["digest"]
        return body

    return make


def test_the_live_receipt_is_the_one_that_nothing_supersedes(store, claim):
    first = store.put("qualification", claim(CELL, "first"))
    second = store.put("qualification", claim(CELL, "second", supersedes=first))
    third = store.put("qualification", claim(CELL, "third", supersedes=second))
    store.put("qualification", claim(OTHER_CELL, "elsewhere"))
    assert store.live(CELL)["digest"] == third
    assert store.latest(CELL)["digest"] == third


def test_two_live_receipts_are_ambiguous_and_named(store, claim):
    first = store.put("qualification", claim(CELL, "first"))
    second = store.put("qualification", claim(CELL, "second"))
    with pytest.raises(Refusal) as caught:
        store.live(CELL)
    assert caught.value.reason is Reason.AMBIGUOUS
    assert first in str(caught.value)
    assert second in str(caught.value)


def test_a_new_receipt_settles_what_two_writers_left_ambiguous(store, claim):
    later = store.put("qualification", claim(CELL, "b", ended="2026-02-02T00:00:00Z"))
    earlier = store.put("qualification", claim(CELL, "a"))
    heads = [body["digest"] for body in store.heads(CELL)]
    assert heads == [earlier, later]
    new = claim(CELL, "new", supersedes=heads[-1], revokes=heads[:-1])
    third = store.put("qualification", new)
    assert store.live(CELL)["digest"] == third


def test_a_receipt_supersedes_only_within_its_cell(store, claim):
    first = store.put("qualification", claim(CELL, "first"))
    store.put("qualification", claim(OTHER_CELL, "elsewhere", supersedes=first))
    assert store.live(CELL)["digest"] == first


def test_a_revoked_receipt_is_gone_and_revives_no_older_one(store, claim):
    first = store.put("qualification", claim(CELL, "first"))
    second = store.put("qualification", claim(CELL, "second", supersedes=first))
    store.put("qualification", claim(OTHER_CELL, "withdrawal", revokes=[second]))
    assert store.live(CELL) is None


def test_earlier_attempts_are_listed_oldest_first_interrupted_ones_too(store, claim, factory):
    late = store.put("qualification", claim(CELL, "late", ended="2026-02-01T00:00:05.5Z"))
    early = store.put("qualification", claim(CELL, "early", ended="2026-02-01T00:00:05Z"))
    stopped = factory.unmeasured("incomplete")
    stopped["cell_digest"] = CELL
    stopped["execution"]["ended_at"] = "2026-02-01T00:00:05.25Z"
    middle = store.put("incomplete", {k: v for k, v in stopped.items() if k != "digest"})
    store.put("qualification", claim(OTHER_CELL, "elsewhere"))
    found = store.attempts(CELL)
    assert [a["digest"] for a in found] == [early, middle, late]
    assert found[0] == {
        "digest": early,
        "state": "certified_fast",
        "ended_at": "2026-02-01T00:00:05Z",
    }


def test_a_withdrawal_is_remembered_and_revives_no_older_receipt(store, claim):
    first = store.put("qualification", claim(CELL, "first"))
    second = store.put("qualification", claim(CELL, "second", supersedes=first))
    assert store.revoked() == frozenset()
    digest = store.revoke([second], AT)
    assert store.get("revocation", digest)["revokes"] == [second]
    assert Store(store.root).revoked() == {second}
    assert store.live(CELL) is None
    assert store.heads(CELL) == ()


def test_a_withdrawal_settles_two_live_receipts(store, claim):
    first = store.put("qualification", claim(CELL, "first"))
    second = store.put("qualification", claim(CELL, "second"))
    store.revoke([first], AT)
    assert store.live(CELL)["digest"] == second


def test_what_was_withdrawn_before_is_not_written_again(store, claim):
    first = store.put("qualification", claim(CELL, "first"))
    assert store.revoke([first], AT)
    assert store.revoke([first], "2026-02-04T00:00:00Z") is None
    assert len(list(store.list("revocation"))) == 1


@pytest.mark.parametrize(
    ("digests", "at"), [(["not a digest"], AT), (["sha256:" + "0" * 64], "yesterday")]
)
def test_a_withdrawal_of_no_digest_or_at_no_time_is_refused(store, digests, at):
    with pytest.raises(InputError) as caught:
        store.revoke(digests, at)
    assert caught.value.reason is Reason.SCHEMA
    assert store.revoked() == frozenset()


def test_an_attempt_that_was_withdrawn_still_counts_as_one(store, claim):
    first = store.put("qualification", claim(CELL, "first"))
    store.revoke([first], AT)
    assert [a["digest"] for a in store.attempts(CELL)] == [first]


def test_the_claims_of_this_file_have_the_shape_of_receipts(claim):
    from flashrt.document.schema import problems

    assert problems(seal(claim(CELL, "any")), "qualification_receipt") == []
