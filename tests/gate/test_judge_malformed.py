"""Evidence and thresholds that no measurement can have left: unknown, and never an exception."""

from __future__ import annotations

import copy
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashrt.gate.judge import STATES, judge
from flashrt_runtime.reason import Reason


def names(verdict):
    return [Reason.of(because["code"]).name for because in verdict["reasons"]]


def each(evidence, **changes):
    for when in ("before", "after"):
        for window in evidence["parity"][when]:
            window.update(changes)
    return evidence


def drop_bad_blocks(run):
    run["blocks"][0]["kept"] = False


def keep_loaded_block(run):
    run["blocks"][0]["foreign"] = 0.5


def hide_a_block(run):
    run["blocks"].pop()
    del run["pairs"][-2:]


def go_on_after_decision(run):
    run["blocks"] += run["blocks"]
    run["pairs"] += run["pairs"]
    run["looks"] = [20, 40]


def extend_without_look(run):
    run["blocks"] += run["blocks"][:1]
    run["pairs"] += run["pairs"][:2]


@pytest.mark.parametrize("race", ["race", "null"])
@pytest.mark.parametrize(
    "change",
    [
        drop_bad_blocks,
        keep_loaded_block,
        hide_a_block,
        go_on_after_decision,
        extend_without_look,
        lambda run: run.update(stopped="budget"),
        lambda run: run.update(looks=[]),
        lambda run: run.update(looks=[18]),
        lambda run: run.update(unit="ms"),
        lambda run: run.update(repeat=0),
        lambda run: run["pairs"].__setitem__(0, [0, 5]),
        lambda run: run["pairs"].__setitem__(0, [5.5, 5]),
        lambda run: run["pairs"].__setitem__(0, [5, True]),
        lambda run: run["pairs"].__setitem__(0, [5]),
        lambda run: run["pairs"].pop(),
        lambda run: run["blocks"][0].update(order="AABB"),
        lambda run: run["blocks"][0].update(foreign=math.nan),
    ],
)
def test_a_series_that_its_rule_cannot_have_left_is_unknown(evidence, gate, race, change):
    change(evidence["processes"][0][race])
    verdict = judge(evidence, gate.record())
    assert (verdict["state"], names(verdict)) == ("unknown", ["INCOMPLETE"])
    assert f"processes[0].{race}" in verdict["reasons"][0]["subject"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("margin", 0.9),
        ("margin", math.nan),
        ("margin", True),
        ("alpha", 0),
        ("alpha", 0.9),
        ("attempt", 0),
        ("looks", []),
        ("looks", [21]),
        ("looks", [40, 20]),
        ("processes", 0),
        ("foreign_limit", 1.5),
        ("null_width", 1.0),
        ("metric", "beauty"),
        ("bands", {"pass": 0.5, "warn": 0.9}),
        ("bands", {"pass": 0.5}),
        ("floors", {"beauty": 1.0}),
        ("floors", {"kl_mean": math.nan}),
        ("floors", []),
    ],
)
def test_thresholds_that_cannot_be_are_unknown(evidence, gate, name, value):
    verdict = judge(evidence, {**gate.record(), name: value})
    assert (verdict["state"], names(verdict)) == ("unknown", ["INCOMPLETE"])
    assert verdict["reasons"][0]["subject"].startswith(f"$.thresholds.{name}")


def test_parity_of_other_frames_after_the_race_is_unknown(evidence, gate):
    evidence["parity"]["after"][0]["frame"] = "another"
    assert names(judge(evidence, gate.record())) == ["INCOMPLETE"]


def test_parity_counted_twice_is_unknown(evidence, gate):
    for when in ("before", "after"):
        evidence["parity"][when] = [evidence["parity"][when][0]] * 2
    assert names(judge(evidence, gate.record())) == ["INCOMPLETE"]


def test_more_agreement_than_positions_is_unknown(evidence, gate):
    assert names(judge(each(evidence, top1_agree=65), gate.record())) == ["INCOMPLETE"]


def test_a_metric_of_another_kind_of_output_is_unknown(evidence, gate):
    verdict = judge(evidence, {**gate.record(), "metric": "cosine"})
    assert (verdict["state"], names(verdict)) == ("unknown", ["INCOMPLETE"])


def paths(value, path=()):
    yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, child in items:
            yield from paths(child, (*path, key))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
SETTINGS = settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SETTINGS
@given(data=st.data())
def test_nothing_that_a_stranger_writes_makes_it_raise_or_certifies_nan(data, quiet, factory):
    body = {"evidence": copy.deepcopy(quiet), "thresholds": factory.thresholds().record()}
    where = data.draw(st.sampled_from([p for p in paths(body) if p]))
    value = data.draw(JSON)
    parent = body
    for key in where[:-1]:
        parent = parent[key]
    parent[where[-1]] = value
    verdict = judge(body["evidence"], body["thresholds"])
    assert verdict["state"] in STATES
    if isinstance(value, float) and not math.isfinite(value):
        ignored = {"environment", "resources", "dispatched", "setup_s", "machine"}
        assert verdict["state"] == "unknown" or ignored & set(where)


@SETTINGS
@given(evidence=JSON, thresholds=JSON)
def test_anything_at_all_is_unknown(evidence, thresholds):
    verdict = judge(evidence, thresholds)
    assert (verdict["state"], verdict["band"]) == ("unknown", "none")


@pytest.mark.parametrize("junk", [None, object(), {1: 2}, [float("inf")], "x" * 100])
def test_python_values_that_are_not_json_are_unknown(junk, gate):
    assert judge(junk, gate.record())["state"] == "unknown"
    assert judge({}, junk)["state"] == "unknown"
