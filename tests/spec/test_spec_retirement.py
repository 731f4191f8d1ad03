"""Retirement waits for every in-tree user's receipt on the successor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flashrt.spec.lock import Entry, Lock, Migration, Status
from flashrt.spec.retirement import User, receipts, refused, users
from flashrt_runtime.reason import Reason

NEW = "sha256:" + "2" * 64


def entry(version: int, status: Status, note: Migration | None = None) -> Entry:
    digest = "sha256:" + str(version) * 64
    return Entry("scaled", version, digest, "", status, note, "digests.lock", 3, "$.structures[0]")


LOCK = Lock(
    "digests.lock",
    (
        entry(1, Status.RETIRED, Migration("0.2.0", "a point moved", "scaled@2")),
        entry(2, Status.ACTIVE),
    ),
)
BINDING = User("b.yaml", 7, "$.regions.r.structure", "binding", "host", "scaled@2")
IMPL = User("i.json", 1, "$.structure", "impl", "cpu_fp16", "scaled@2")


def receipt(**change: Any) -> dict[str, Any]:
    cell = {
        "structures": [{"name": "scaled", "version": 2, "spec_digest": NEW}],
        "pipeline": None,
        "binding": {"name": "host"},
        "impls": [{"structure": "scaled@2", "backend": "cpu_fp16"}],
    }
    state = change.pop("state", "supported_correct")
    return {"kind": "qualification", "cell": {**cell, **change}, "verdict": {"state": state}}


@pytest.mark.parametrize("user", [BINDING, IMPL])
def test_a_user_without_a_receipt_on_the_successor_stops_the_retirement(user: User) -> None:
    found = list(refused(LOCK, [user], []))
    assert len(found) == 1
    assert found[0].reason is Reason.RETIRED
    assert (found[0].file, found[0].line, found[0].path) == (user.file, user.line, user.path)
    assert "has no receipt on scaled@2" in found[0].what
    assert list(refused(LOCK, [user], [receipt()])) == []


@pytest.mark.parametrize(
    "body",
    [
        receipt(state="unknown"),
        receipt(binding={"name": "another"}, impls=[]),
        receipt(structures=[{"name": "scaled", "version": 2, "spec_digest": "sha256:" + "9" * 64}]),
        receipt(structures=[{"name": "scaled", "version": 1, "spec_digest": NEW}]),
        {"kind": "qualification"},
    ],
)
def test_a_receipt_for_something_else_does_not_count(body: dict[str, Any]) -> None:
    assert len(list(refused(LOCK, [BINDING, IMPL], [body]))) == 2


def test_a_user_that_still_names_the_retired_version_is_refused_at_its_line() -> None:
    user = User("b.yaml", 7, "$.regions.r.structure", "binding", "host", "scaled@1")
    found = list(refused(LOCK, [user], [receipt()]))
    assert "still names scaled@1" in found[0].what
    assert "scaled@2" in found[0].do


def test_a_version_that_coexists_asks_for_nothing() -> None:
    lock = Lock("digests.lock", (entry(1, Status.COEXISTING), entry(2, Status.ACTIVE)))
    assert list(refused(lock, [BINDING, IMPL], [])) == []


def test_users_and_receipts_are_found_on_disk(tmp_path: Path) -> None:
    bindings, impls, earned = tmp_path / "b", tmp_path / "i", tmp_path / "r"
    for folder in (bindings, impls / "scaled", earned / "deep"):
        folder.mkdir(parents=True)
    (bindings / "host.yaml").write_text(
        "name: host\nregions:\n  r:\n    structure: scaled@2\npipeline: {structure: p@1}\n"
    )
    (bindings / "broken.yaml").write_text("a: [\n")
    (bindings / "other.yaml").write_text("name: x\n")
    (impls / "scaled" / "k.json").write_text('{"backend": "k", "structure": "scaled@2"}')
    (impls / "scaled" / "broken.json").write_text("{")
    (earned / "deep" / "a.json").write_text(json.dumps(receipt()))
    (earned / "b.json").write_text("{")
    (earned / "c.json").write_text('{"kind": "preflight"}')
    found = users(bindings, impls)
    assert [(u.kind, u.name, u.structure) for u in found] == [
        ("binding", "host", "scaled@2"),
        ("binding", "host", "p@1"),
        ("impl", "k", "scaled@2"),
    ]
    assert found[0].line == 4
    assert list(receipts(earned)) == [receipt()]
