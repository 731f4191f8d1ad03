"""Every leaf of a receipt is edited, one at a time: as the file is, and sealed again.

A leaf is changed and it is taken away; an empty list or object gets a member. What may pass once a
forger seals the file again is what the documents say only a signature protects, and nothing else.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest

from flashrt.document.canonical import canonical_bytes, read_json, seal
from flashrt.receipt.build import cell_digest
from flashrt.receipt.spec_gates import catalog_gates
from flashrt.receipt.store import Store
from flashrt.receipt.verify import verify
from flashrt_runtime.reason import Reason, Refusal

REPOSITORY = Path(__file__).parent.parent.parent
DOCUMENT = REPOSITORY / "docs" / "receipts.md"
EARNED = sorted((REPOSITORY / "receipts" / "qualification").glob("*.json"))
GONE = object()
OTHER = {
    "certified_fast": "supported_correct",
    "supported_correct": "certified_fast",
    "pass": "warn",
    "held_out": "fit_residual",
    "distribution": "tokens",
    "ABBA": "BAAB",
    "BAAB": "ABBA",
    "decided": "budget",
    "decode": "prefill",
    "compile": "aot",
    "decoder_ffn@1": "decoder_ffn@2",
}


def signature_only():
    """The paths that the documents list: where an edit that is sealed again can pass."""
    text = DOCUMENT.read_text(encoding="utf-8")
    listed = text.split("<!-- only a signature protects -->")[1].split("```")[1]
    return {line.strip() for line in listed.splitlines() if line.strip()}


def leaves(value, path=()):
    if not value and isinstance(value, dict | list):
        yield path
    elif isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, list):
        for i, child in enumerate(value):
            yield from leaves(child, (*path, i))
    else:
        yield path


MAPS = (".software", ".packages", ".floors", ".expected", ".graph_calls", ".dtype_ratio")


def pattern(path, value=None):
    """The path without indices and names, e.g. ``$.evidence.path[].expected.*``."""
    text = "$"
    for part in path:
        if isinstance(part, int):
            text += "[]"
        else:
            text += ".*" if text.endswith(MAPS) else f".{part}"
    if value in ([], {}):
        text += "[]" if value == [] else ".*"
    return re.sub(r"(pairs|norm_ratio|scale)\[\]\[\]", r"\1[]", text)


def edit(value):
    """Another value of the same type, as a careful forger would write it."""
    if isinstance(value, dict | list):
        return {**value, "x": 1} if isinstance(value, dict) else [*value, "sha256:" + "2" * 64]
    if isinstance(value, str):
        return edit_text(value)
    if isinstance(value, bool):
        return not value
    if value is None:
        return "sha256:" + "0" * 64
    return value + 1 if isinstance(value, int) else value * 1.0001 + 0.0001


def edit_text(value):
    if value in OTHER:
        return OTHER[value]
    if value.startswith("sha256:"):
        return value[:-1] + ("0" if value[-1] != "0" else "1")
    if re.match(r"\d{4}-", value):
        return value.replace(":1", ":0") if ":1" in value else value.replace("T12", "T11")
    return value + "x"


def sampled(body, every, most=2):
    """Every leaf, or of those that are alike but for indices and names the first ones."""
    seen = {}
    for leaf in leaves(body):
        alike = pattern(leaf)
        seen[alike] = seen.get(alike, 0) + 1
        if every or seen[alike] <= most:
            yield leaf


FULLY = pytest.mark.parametrize(
    "every", [pytest.param(False, id="sample"), pytest.param(True, marks=pytest.mark.slow)]
)


def changed(body, path, value):
    copied = copy.deepcopy(body)
    parent = copied
    for key in path[:-1]:
        parent = parent[key]
    if value is GONE:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return copied


def at(body, path):
    for key in path:
        body = body[key]
    return body


def resealed(body):
    return seal({**body, "cell_digest": cell_digest(body.get("cell", {}))})


@pytest.fixture(scope="module")
def receipt(factory):
    earlier = [
        {
            "digest": factory.digest("earlier"),
            "state": "supported_correct",
            "ended_at": "2026-01-30T12:00:00Z",
        }
    ]
    return factory.receipt(
        factory.thresholds(attempt=2, floors={"kl_mean": 0.1}),
        attempts=earlier,
        supersedes=factory.digest("earlier"),
        revokes=[factory.digest("withdrawn")],
    )


def test_the_receipt_itself_holds(receipt, factory):
    assert verify(receipt, factory.gates) == []
    assert receipt["verdict"]["state"] == "certified_fast"


def edits(body, every):
    """Each leaf with the body in which it says something else, and with the one without it."""
    for leaf in sampled(body, every):
        yield leaf, changed(body, leaf, edit(at(body, leaf)))
    for leaf in sampled(body, every, most=1):
        yield leaf, changed(body, leaf, GONE)


@FULLY
def test_an_edit_of_any_leaf_is_caught_as_the_file_is(receipt, tmp_path, every):
    store = Store(tmp_path)
    path = store.path("qualification", store.put("qualification", receipt))
    whole = path.read_bytes()
    caught = tried = 0
    for _, edited in edits(receipt, every):
        tried += 1
        path.write_bytes(canonical_bytes(edited))
        with pytest.raises(Refusal) as refusal:
            store.get("qualification", receipt["digest"])
        caught += refusal.value.reason is Reason.DIGEST and str(path) in refusal.value.subject
    path.write_bytes(whole)
    assert store.get("qualification", receipt["digest"]) == receipt
    assert caught == tried > 250


@FULLY
def test_the_verifier_names_the_digest_or_what_the_schema_misses(receipt, factory, every):
    for leaf, edited in edits(receipt, every):
        named = {(b.reason, b.subject) for b in verify(edited, factory.gates)}
        assert (Reason.DIGEST, "$.digest") in named or Reason.SCHEMA in {r for r, _ in named}, leaf


@FULLY
def test_an_edit_sealed_again_is_caught_unless_only_a_signature_can(receipt, factory, every):
    slipped = set()
    sealed = {("digest",), ("cell_digest",)}
    for leaf, edited in edits(receipt, every):
        if leaf not in sealed and not verify(resealed(edited), factory.gates):
            slipped.add(pattern(leaf, at(receipt, leaf)))
    assert not {p for p in slipped if p.startswith(("$.verdict", "$.thresholds"))}
    assert slipped <= signature_only()
    assert {"$.cell.device.arch", "$.evidence.environment.kernel", "$.plan"} <= slipped


def test_the_documents_list_no_more_than_what_passes(receipt):
    listed = signature_only()
    assert len(listed) > 80
    assert listed <= {pattern(leaf, at(receipt, leaf)) for leaf in leaves(receipt)}
    assert not {p for p in listed if p.startswith(("$.verdict", "$.thresholds", "$.digest"))}


@pytest.mark.parametrize("path", EARNED, ids=lambda p: p.stem[:8])
def test_receipts_that_were_earned_hold_and_their_edits_are_caught(path):
    earned = read_json(path)
    assert verify(earned, catalog_gates) == []
    slipped = set()
    for leaf in sampled(earned, every=False, most=1):
        name = pattern(leaf, at(earned, leaf))
        if leaf not in {("digest",), ("cell_digest",)} and name not in signature_only():
            edited = resealed(changed(earned, leaf, edit(at(earned, leaf))))
            slipped |= set() if verify(edited, catalog_gates) else {name}
    assert slipped == set()


def test_a_statistic_edited_and_sealed_again_is_named(receipt, factory):
    path = ("verdict", "statistics", "speedup", "median")
    edited = resealed(changed(receipt, path, 9.9))
    found = verify(edited, factory.gates)
    assert [(b.reason, b.subject) for b in found] == [
        (Reason.STATISTIC, "$.verdict.statistics.speedup.median")
    ]


def test_a_verdict_edited_and_sealed_again_is_named(factory):
    gate = factory.thresholds()
    lost = factory.receipt(gate, evidence=factory.evidence(gate, ratio=0.8))
    forged = changed(lost, ("verdict", "state"), "certified_fast")
    forged["verdict"]["reasons"] = []
    found = verify(resealed(forged), factory.gates)
    assert {b.reason for b in found} == {Reason.VERDICT}
    assert "$.verdict.state" in {b.subject for b in found}


@pytest.mark.parametrize("factor", [0.5, 0.999, 1.001, 2.0])
def test_every_number_of_verdict_and_thresholds_is_caught_either_way(receipt, factory, factor):
    for leaf in leaves(receipt):
        value = at(receipt, leaf)
        if leaf[0] in {"verdict", "thresholds"} and isinstance(value, float) and value:
            edited = resealed(changed(receipt, leaf, value * factor))
            assert verify(edited, factory.gates), leaf


def test_a_lowered_threshold_is_caught_even_with_a_verdict_made_for_it(receipt, factory):
    from flashrt.gate.judge import judge

    lowered = {
        "margin": 1.0001,
        "alpha": 0.2,
        "processes": 1,
        "foreign_limit": 0.9,
        "null_width": 1.5,
        "looks": [20],
        "scale_bounds": [0.1, 10.0],
        "attempt": 1,
        "metric": "cosine",
        "bands": {"pass": 0.5, "warn": 0.4},
    }
    for name, value in lowered.items():
        edited = changed(receipt, ("thresholds", name), value)
        edited["verdict"] = judge(edited["evidence"], edited["thresholds"])
        found = verify(resealed(edited), factory.gates)
        subjects = {b.subject for b in found if b.reason is Reason.THRESHOLD}
        assert f"$.thresholds.{name}" in subjects, name


def test_a_raised_margin_that_the_evidence_supports_is_a_claim_like_any_other(factory):
    raised = factory.thresholds(margin=1.2)
    assert verify(factory.receipt(raised), factory.gates) == []
