"""Preparation: seams, a split of the text, and a calibration that was made on this very text."""

from __future__ import annotations

import shutil

import pytest

from flashrt.qualify.prepare import prepare
from flashrt.qualify.request import CellRequest
from flashrt.receipt.store import Store
from flashrt_runtime.reason import Reason, Refusal

STATIC = (CellRequest.parse("int8_static@decode"),)
DYNAMIC = (CellRequest.parse("fp16_weight@decode"),)


@pytest.fixture
def told():
    return []


@pytest.fixture
def ready(at_home, source, tmp_path, told):
    """``ready(requests, frames=…, calibration=…)``: prepare with one store."""

    def make(requests, frames=source[1], calibration=None, seed=0):
        return prepare(
            source[0],
            frames,
            requests,
            Store(tmp_path / "store"),
            calibration=calibration,
            seed=seed,
            tell=lambda stage, *_, **__: told.append(stage),
        )

    return make


def test_no_calibration_is_made_where_no_scheme_reads_one(ready, tmp_path):
    assert ready(DYNAMIC).calibration is None
    assert list(Store(tmp_path / "store").list("calibration")) == []


def test_a_calibration_is_made_once_and_used_again(ready, tmp_path):
    first, again = ready(STATIC), ready(STATIC)
    assert first.calibration.digest == again.calibration.digest
    assert [b["digest"] for b in Store(tmp_path / "store").list("calibration")] == [
        first.calibration.digest
    ]
    named = ready(STATIC, calibration=first.calibration.digest)
    assert named.calibration.digest == first.calibration.digest
    assert named.held_out == first.held_out
    with pytest.raises(Refusal) as caught:
        ready(STATIC, calibration="sha256:" + "0" * 64)
    assert caught.value.reason is Reason.DIGEST


@pytest.fixture
def other_texts(home, tmp_path):
    """Another folder of the same name, with the same file names and other words."""
    folder = tmp_path / "elsewhere" / "texts"
    shutil.copytree(home / "texts", folder)
    for path in folder.rglob("*.txt"):
        words = path.read_text().split()
        path.write_text(" ".join(reversed(words)))
    return folder


def test_a_calibration_on_other_text_of_the_same_name_is_not_used(ready, other_texts):
    first = ready(STATIC)
    second = ready(STATIC, frames=f"text:{other_texts}")
    assert second.calibration.digest != first.calibration.digest
    with pytest.raises(Refusal) as caught:
        ready(STATIC, frames=f"text:{other_texts}", calibration=first.calibration.digest)
    assert caught.value.reason is Reason.DIGEST
    for path in other_texts.rglob("*.txt"):
        path.rename(path.with_name(f"new-{path.name}"))
    with pytest.raises(Refusal) as caught:
        ready(STATIC, frames=f"text:{other_texts}", calibration=first.calibration.digest)
    assert caught.value.reason is Reason.EMPTY_CORPUS


def test_too_little_text_is_refused_before_anything_is_measured(ready, tmp_path, told):
    folder = tmp_path / "short"
    folder.mkdir()
    for i in range(3):
        (folder / f"{i}.txt").write_text(f"w{i} w1 w2")
    with pytest.raises(Refusal) as caught:
        ready(STATIC, frames=f"text:{folder}")
    assert caught.value.reason is Reason.EMPTY_CORPUS
    assert told == ["frames", "load"]


def test_a_discovered_host_has_a_plain_decode_pipeline_and_an_identity_of_its_own(prepared):
    assert prepared.binding["name"] == "discovered"
    assert prepared.manifest["pipeline"] == {"structure": "autoregressive_decode_pipeline@1"}
    plan = prepared.plan(DYNAMIC[0])
    assert plan["binding"] == prepared.binding
    assert plan["binding_manifest"] == prepared.manifest
    assert plan["calibration"] is None
    assert prepared.plan(STATIC[0])["calibration"] == prepared.calibration.digest


def test_a_context_that_the_host_has_no_positions_for_is_refused(ready):
    with pytest.raises(Refusal) as caught:
        ready((CellRequest.parse("fp16_weight@decode", context=100_000),))
    assert caught.value.reason is Reason.SHAPE
    assert "positions" in caught.value.what
