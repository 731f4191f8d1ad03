"""Gates that look at every frame: tokens, the worst sample, constant outputs, bounds of scale."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from flashrt.gate.judge import judge
from flashrt.race.protocol import Protocol
from flashrt_runtime.reason import Reason


def names(verdict):
    return [Reason.of(because["code"]).name for because in verdict["reasons"]]


def frames(evidence, factory, agree):
    """Evidence with one window of 64 positions for each of these counts of agreement."""
    for when in ("before", "after"):
        evidence["parity"][when] = [
            factory.window(f"f{i}", top1_agree=n, near_ties=0) for i, n in enumerate(agree)
        ]
    return evidence


def tokens(evidence, windows):
    evidence["parity"] = {
        "kind": "tokens",
        "label": "held_out",
        "before": windows,
        "after": copy.deepcopy(windows),
    }
    return evidence


def generated(frame, count=64, identical=64, first=None, distinct=20):
    return {
        "frame": frame,
        "tokens": count,
        "identical": identical,
        "first_difference": first,
        "distinct": distinct,
    }


IDENTITY = {"metric": "token_identity", "bands": {"pass": 1.0, "warn": 1.0}}


def test_identical_tokens_are_certified(evidence, gate):
    body = tokens(evidence, [generated("a"), generated("b")])
    verdict = judge(body, gate.record() | IDENTITY)
    assert (verdict["state"], verdict["band"]) == ("certified_fast", "pass")
    numbers = verdict["statistics"]["parity"]
    assert (numbers["token_identity"], numbers["top1_agreement"]) == (1, None)
    assert (numbers["worst_value"], numbers["units"]) == (1, 128)


def test_one_token_that_is_not_the_host_s_is_unknown_and_named(evidence, gate):
    body = tokens(evidence, [generated("a"), generated("b", identical=63, first=17)])
    verdict = judge(body, gate.record() | IDENTITY)
    assert (verdict["state"], set(names(verdict))) == ("unknown", {"FLOOR"})
    assert verdict["reasons"][0]["subject"] == "b before"
    assert "17" in verdict["reasons"][0]["detail"]
    assert verdict["statistics"]["parity"]["worst_window"] == "b"


def test_one_token_over_and_over_is_constant(evidence, gate):
    body = tokens(evidence, [generated("a", distinct=1), generated("b", distinct=1)])
    assert set(names(judge(body, gate.record() | IDENTITY))) == {"CONSTANT"}


@pytest.mark.parametrize(
    "change",
    [
        {"identical": 65},
        {"identical": 63},
        {"first_difference": 3},
        {"identical": 63, "first_difference": 64},
        {"tokens": 0},
    ],
)
def test_tokens_that_cannot_have_been_counted_so_are_unknown(evidence, gate, change):
    body = tokens(evidence, [generated("a") | change])
    assert names(judge(body, gate.record() | IDENTITY)) == ["INCOMPLETE"]


def test_tokens_have_no_other_metric(evidence, gate):
    assert names(judge(tokens(evidence, [generated("a")]), gate.record())) == ["INCOMPLETE"]


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (55, ("pass", "certified_fast")),
        (54, ("warn", "certified_fast")),
        (45, ("warn", "certified_fast")),
        (44, ("low", "supported_correct")),
        (0, ("low", "supported_correct")),
    ],
)
def test_many_good_frames_do_not_hide_a_broken_one(evidence, gate, factory, last, told):
    body = frames(evidence, factory, [64] * 30 + [last])
    verdict = judge(body, gate.record())
    numbers = verdict["statistics"]["parity"]
    assert numbers["top1_agreement"] > 0.95
    assert (numbers["worst_window"], numbers["worst_value"]) == ("f30", last / 64)
    assert (verdict["band"], verdict["state"]) == told


def test_a_near_tie_agrees_and_is_counted_apart(evidence, gate, factory):
    for when in ("before", "after"):
        evidence["parity"][when] = [factory.window("f", top1_agree=50, near_ties=12)]
    verdict = judge(evidence, gate.record())
    numbers = verdict["statistics"]["parity"]
    assert (numbers["top1_agreement"], numbers["top1_strict"]) == (62 / 64, 50 / 64)
    assert (numbers["near_ties"], verdict["band"]) == (12, "pass")


def test_the_first_protocol_counts_a_near_tie_as_a_disagreement(evidence, factory):
    old = replace(factory.thresholds(), protocol=Protocol.EVEN, looks=Protocol.EVEN.looks)
    body = factory.evidence(old)
    for when in ("before", "after"):
        body["parity"][when] = [factory.window("f", top1_agree=50, near_ties=12)]
    verdict = judge(body, old.record())
    numbers = verdict["statistics"]["parity"]
    assert numbers["top1_agreement"] == 50 / 64
    assert "top1_strict" not in numbers
    assert "shifted" not in verdict["statistics"]["diagnosis"][0]["race"]
    assert verdict["band"] == "low"


def test_one_output_for_every_frame_is_constant(evidence, gate, factory):
    for when in ("before", "after"):
        for window in evidence["parity"][when]:
            window["treated"] = factory.digest("always")
    verdict = judge(evidence, gate.record())
    assert (verdict["state"], set(names(verdict))) == ("unknown", {"CONSTANT"})


def test_one_output_for_the_only_frame_is_not_constant(evidence, gate, factory):
    frames(evidence, factory, [64])
    assert judge(evidence, gate.record())["state"] == "certified_fast"


@pytest.mark.parametrize("scale", [0.98, 1.03])
def test_bounds_of_scale_are_a_threshold(evidence, gate, scale):
    for when in ("before", "after"):
        evidence["parity"][when][0]["scale"] = scale
    assert judge(evidence, gate.record())["state"] == "certified_fast"
    narrow = gate.record() | {"scale_bounds": [0.99, 1.01]}
    verdict = judge(evidence, narrow)
    assert (verdict["state"], set(names(verdict))) == ("unknown", {"SCALE"})
    assert "0.99 to 1.01" in verdict["reasons"][0]["detail"]
