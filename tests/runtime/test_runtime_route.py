"""A route is chosen by exact facts: never the nearest, never a withdrawn one, never a tie."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import flashrt_runtime
from flashrt_runtime.facts import Facts, model_facts
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.route import AcceptBand, Want, choose, first_mismatch
from flashrt_runtime.route_record import Route


def refused(reason: Reason, act: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        act()
    assert caught.value.reason is reason, str(caught.value)
    return caught.value


@pytest.fixture
def here(llama: Any) -> Facts:
    """The facts of the tiny Llama on this machine."""
    return model_facts(llama, ("compile",))


def chosen(maker: Any, here: Facts, **want: Any) -> Route:
    content = flashrt_runtime.load(maker.write(), trust=[maker.public]).content
    return choose(content, here, Want(**want))


def test_the_exact_cell_is_chosen_by_rank(maker: Any, here: Facts) -> None:
    maker.add(rank=1)
    best = maker.add(maker.cell(precision={"scheme": "w8a16_decode"}), rank=0)
    assert chosen(maker, here).receipt == best
    assert chosen(maker, here, scheme="fp16_weight").receipt != best


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("device", "name", "another processor"),
        ("device", "name", None),
        ("device", "isa", ["avx2"]),
        ("device", "threads", 977),
        ("device", "arch", "aarch64"),
        ("software", "torch", "1.0"),
        ("software", "transformers", None),
        ("model_artifact", "checkpoint_digest", "sha256:" + "0" * 64),
        ("model_artifact", "architecture_digest", "sha256:" + "0" * 64),
        ("model_artifact", "architecture_digest", None),
        ("model_artifact", "dtype", "bfloat16"),
    ],
)
def test_one_fact_that_differs_is_named(
    maker: Any, here: Facts, part: str, name: str, value: Any
) -> None:
    cell = maker.cell()
    cell[part] = cell[part] | {name: value}
    maker.add(cell)
    refusal = refused(Reason.UNKNOWN_CELL, lambda: chosen(maker, here))
    assert f"{part}.{name}: expected {value!r}, found " in refusal.what


def test_an_unread_fact_never_matches(maker: Any, here: Facts) -> None:
    cell = maker.cell()
    cell["device"] = cell["device"] | {"name": None}
    maker.add(cell)
    blind = replace(here, device=here.device | {"name": None})
    refusal = refused(Reason.UNKNOWN_CELL, lambda: chosen(maker, blind))
    assert "device.name: expected None, found None" in refusal.what


def test_form_phase_and_scheme_are_facts_too(maker: Any, here: Facts) -> None:
    maker.add()
    refused(Reason.UNKNOWN_CELL, lambda: chosen(maker, replace(here, form=("aot",))))
    refused(Reason.UNKNOWN_CELL, lambda: chosen(maker, replace(here, form=("compile", "x"))))
    refused(Reason.UNKNOWN_CELL, lambda: chosen(maker, here, phase="prefill"))
    refusal = refused(Reason.UNKNOWN_CELL, lambda: chosen(maker, here, scheme="none"))
    assert "precision.scheme: expected 'fp16_weight', found 'none'" in refusal.what


def test_the_route_that_agrees_longest_names_the_difference(maker: Any, here: Facts) -> None:
    far = maker.cell()
    far["device"] = far["device"] | {"class": "cuda"}
    near = maker.cell()
    near["model_artifact"] = near["model_artifact"] | {"dtype": "bfloat16"}
    maker.add(far)
    maker.add(near)
    refusal = refused(Reason.UNKNOWN_CELL, lambda: chosen(maker, here))
    assert "model_artifact.dtype" in refusal.what
    explained = flashrt_runtime.load(maker.root, trust=[maker.public]).explain(here)
    assert [miss.fact for _, miss in explained if miss] == ["device.class", "model_artifact.dtype"]


def test_an_empty_release_knows_no_cell(maker: Any, here: Facts) -> None:
    assert "no route" in refused(Reason.UNKNOWN_CELL, lambda: chosen(maker, here)).what


@pytest.mark.parametrize("where", ["release", "receipt"])
def test_withdrawn_receipts_are_refused(maker: Any, here: Facts, where: str) -> None:
    gone = maker.add()
    if where == "release":
        maker.revokes = [gone]
    else:
        other = maker.cell()
        other["device"] = other["device"] | {"name": "elsewhere"}
        maker.add(other, revokes=[gone])
    assert gone in refused(Reason.REVOKED, lambda: chosen(maker, here)).what


def test_two_live_receipts_of_a_cell_are_ambiguous_unless_one_replaces(
    maker: Any, here: Facts
) -> None:
    old = maker.add()
    maker.add()
    refused(Reason.AMBIGUOUS, lambda: chosen(maker, here))
    maker.receipts.pop()
    maker.routes.pop()
    new = maker.add(supersedes=old)
    assert chosen(maker, here).receipt == new


def test_two_cells_of_one_rank_are_ambiguous(maker: Any, here: Facts) -> None:
    maker.add(rank=0)
    maker.add(maker.cell(precision={"scheme": "none"}), rank=0)
    refused(Reason.AMBIGUOUS, lambda: chosen(maker, here))
    assert chosen(maker, here, scheme="none").scheme == "none"


def shape(phase: str, rows: int, context: int) -> dict[str, Any]:
    return {"phase": phase, "batch": 1, "rows": rows, "context": context}


def test_routes_of_two_contexts_are_chosen_by_context(maker: Any, here: Facts) -> None:
    near = maker.add(maker.cell(shape=shape("decode", 1, 32)), rank=0)
    # Ranks are among routes of one shape: a lower one of another shape is no answer either.
    far = maker.add(maker.cell(shape=shape("decode", 1, 64)), rank=1)
    refusal = refused(Reason.AMBIGUOUS, lambda: chosen(maker, here, scheme="fp16_weight"))
    assert "rows=1 context=32; rows=1 context=64" in refusal.what
    assert "rows= or context=" in refusal.do
    assert chosen(maker, here, context=32).receipt == near
    assert chosen(maker, here, context=64).receipt == far
    refusal = refused(Reason.UNKNOWN_CELL, lambda: chosen(maker, here, context=48))
    assert "shape.context: expected " in refusal.what
    assert "found 48" in refusal.what


def test_routes_of_two_prefill_rows_are_chosen_by_rows(maker: Any, here: Facts) -> None:
    few = maker.add(maker.cell(shape=shape("prefill", 16, 256)), rank=0)
    many = maker.add(maker.cell(shape=shape("prefill", 256, 256)), rank=0)
    refused(Reason.AMBIGUOUS, lambda: chosen(maker, here, phase="prefill", context=256))
    assert chosen(maker, here, phase="prefill", rows=16).receipt == few
    assert chosen(maker, here, phase="prefill", rows=256, context=256).receipt == many
    refusal = refused(Reason.UNKNOWN_CELL, lambda: chosen(maker, here, phase="prefill", rows=1))
    assert "shape.rows: expected 16, found 1" in refusal.what


def test_states_below_certified_fast_are_not_activated(maker: Any, here: Facts) -> None:
    noise = {"code": "FRT005", "name": "NOISE", "detail": "wide", "subject": ""}
    maker.add(state="supported_correct", reasons=[noise])
    assert "wide" in refused(Reason.NOISE, lambda: chosen(maker, here)).what
    maker.receipts.clear()
    maker.routes.clear()
    maker.add(state="supported_correct", reasons=[{"code": "FRT999"}])
    refused(Reason.LOSS, lambda: chosen(maker, here))


def test_a_low_band_is_activated_only_by_name(maker: Any, here: Facts) -> None:
    low = maker.add(band="low")
    refused(Reason.BAND_LOW, lambda: chosen(maker, here))
    assert chosen(maker, here, accept_band=AcceptBand.LOW).receipt == low
    maker.receipts.clear()
    maker.routes.clear()
    maker.add(band="none")
    refused(Reason.BAND_LOW, lambda: chosen(maker, here, accept_band=AcceptBand.LOW))


def test_a_route_matches_its_own_phase_by_default(maker: Any, here: Facts) -> None:
    maker.add(maker.cell(shape={"phase": "prefill", "batch": 1, "rows": 16, "context": 32}))
    content = flashrt_runtime.load(maker.write(), trust=[maker.public]).content
    assert first_mismatch(content.routes[0], here) is None
