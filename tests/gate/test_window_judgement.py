"""Windows and attacks in the verdict: judged where recorded, attacks required since protocol 2."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashrt.gate.correctness import failures
from flashrt.gate.evidence import read_evidence
from flashrt.gate.integrity import REQUIRED, Attack
from flashrt.gate.judge import judge
from flashrt.race.protocol import Protocol
from flashrt_runtime.reason import Because, Reason

REFUSED = Because(Reason.UNCAPTURABLE, "a replay does not follow the window 'x'", "s").record()
CONSTANT = Because(Reason.CONSTANT, "the output is the same", "s").record()
EMPTY = {"windows": [], "held": [], "unchanged": []}


def named(verdict):
    return [(b["name"], b["subject"]) for b in verdict["reasons"]]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"refused": REFUSED, **EMPTY}, "UNCAPTURABLE"),
        ({"refused": CONSTANT, **EMPTY}, "CONSTANT"),
        ({"windows": ["token_ids"], "unchanged": ["positions"]}, "INCOMPLETE"),
        ({"windows": []}, "INCOMPLETE"),
    ],
)
def test_an_arm_that_does_not_follow_its_windows_is_unknown(evidence, gate, change, reason):
    evidence["window_check"][3].update(change)
    verdict = judge(evidence, gate.record())
    assert verdict["state"] == "unknown"
    assert named(verdict) == [(reason, "process 1, windows of the treated arm")]


@pytest.mark.parametrize("kept", [slice(1, None), slice(None, 5)])
def test_an_arm_without_its_check_is_incomplete(evidence, gate, kept):
    evidence["window_check"] = evidence["window_check"][kept]
    verdict = judge(evidence, gate.record())
    assert verdict["state"] == "unknown"
    assert [name for name, _ in named(verdict)] == ["INCOMPLETE"]


def test_a_check_that_is_there_twice_is_incomplete(evidence, gate):
    evidence["window_check"].append(evidence["window_check"][0])
    assert "2 times" in judge(evidence, gate.record())["reasons"][0]["detail"]


def test_evidence_of_before_windows_were_recorded_is_judged_without_them(evidence, gate):
    del evidence["window_check"]
    assert judge(evidence, gate.record())["state"] == "certified_fast"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"arm": "third"}, "arm"),
        ({"windows": [""]}, "windows[0]"),
        ({"refused": {**REFUSED, "name": "LUCK"}, **EMPTY}, "refused.name"),
        ({"refused": {**REFUSED, "code": "FRT001"}, **EMPTY}, "refused.code"),
        ({"refused": REFUSED}, "refused"),
        ({"unchanged": ["token_ids"]}, "unchanged"),
    ],
)
def test_a_record_that_cannot_be_is_named_by_its_path(evidence, gate, change, where):
    evidence["window_check"][0].update(change)
    verdict = judge(evidence, gate.record())
    assert named(verdict) == [("INCOMPLETE", f"$.evidence.window_check[0].{where}")]


def test_attacks_must_have_been_looked_for_since_the_second_protocol(evidence, gate):
    del evidence["integrity"]
    verdict = judge(evidence, gate.record())
    assert verdict["state"] == "unknown"
    assert named(verdict) == [("INCOMPLETE", "integrity")]
    seen = read_evidence(evidence)
    assert failures(seen, replace(gate, protocol=Protocol.EVEN)) == []


def test_on_a_device_side_streams_must_have_been_looked_at(evidence, gate):
    evidence["environment"]["driver"] = "NVRM version: a driver"
    verdict = judge(evidence, gate.record())
    assert verdict["state"] == "unknown"
    assert {b["detail"] for b in verdict["reasons"]} == {"not looked for: side_stream"}
    for run in evidence["integrity"]:
        run["looked_for"] = sorted({*REQUIRED, Attack.SIDE_STREAM.label})
    assert judge(evidence, gate.record())["state"] == "certified_fast"
