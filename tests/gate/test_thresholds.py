from __future__ import annotations

import json
from dataclasses import replace

import pytest

from flashrt.gate.metrics import SCALE_BOUNDS
from flashrt.gate.reading import Malformed
from flashrt.gate.thresholds import read_thresholds
from flashrt.race.decision import Narrow, PastMargin
from flashrt.race.protocol import Protocol
from flashrt_runtime.reason import Reason, Refusal


def test_a_spec_s_gates_become_thresholds(factory):
    found = factory.thresholds()
    assert (found.margin, found.metric, found.band_pass, found.band_warn) == (
        1.02,
        "top1_agreement",
        0.95,
        0.85,
    )
    assert found.null_width == found.margin


def test_a_caller_may_raise_the_margin(factory):
    raised = factory.thresholds(margin=1.1)
    assert (raised.margin, raised.null_width) == (1.1, 1.1)


@pytest.mark.parametrize(
    ("stated", "subject"),
    [
        ({"margin": 1.01}, "margin"),
        ({"margin": float("nan")}, "margin"),
        ({"margin": float("inf")}, "margin"),
        ({"processes": 2}, "processes"),
        ({"floors": {"beauty": 1.0}}, "floors.beauty"),
        ({"floors": {"kl_mean": float("nan")}}, "floors.kl_mean"),
    ],
)
def test_nothing_can_be_lowered(factory, stated, subject):
    with pytest.raises(Refusal) as caught:
        factory.thresholds(**stated)
    assert (caught.value.reason, caught.value.subject) == (Reason.THRESHOLD, subject)


def test_the_record_is_read_back(factory):
    first = factory.thresholds(margin=1.05, floors={"kl_mean": 0.1}, attempt=3)
    assert read_thresholds(json.loads(json.dumps(first.record()))) == first


def test_a_missing_field_is_named(factory):
    body = factory.thresholds().record()
    del body["alpha"]
    with pytest.raises(Malformed) as caught:
        read_thresholds(body)
    assert caught.value.path == "$.thresholds.alpha"


def test_rules_carry_the_thresholds(factory):
    gate = factory.thresholds(margin=1.05, attempt=2)
    race, null = gate.race_rule(10.0), gate.null_rule(10.0, 40)
    assert race.question == PastMargin(1.05)
    assert null.question == Narrow(1.05)
    assert race.alpha == null.alpha == gate.alpha_series
    assert race.protocol is null.protocol is gate.protocol
    assert (race.budget_s, null.budget_pairs) == (10.0, 40)
    assert gate.alpha_series * 2 == factory.thresholds(margin=1.05).alpha_series


def test_cells_that_are_asked_for_together_share_the_error_rate(factory):
    assert factory.thresholds(cells=4).alpha * 4 == factory.thresholds().alpha


def test_a_record_of_the_first_protocol_names_neither_it_nor_bounds_of_scale(factory):
    first = replace(factory.thresholds(), protocol=Protocol.EVEN, looks=Protocol.EVEN.looks)
    body = json.loads(json.dumps(first.record()))
    assert not {"protocol", "scale_bounds"} & set(body)
    assert read_thresholds(body) == first
    assert first.scale_bounds == SCALE_BOUNDS


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"protocol": 1}, "protocol"),
        ({"protocol": 99}, "protocol"),
        ({"protocol": True}, "protocol"),
        ({"scale_bounds": [1.1, 1.2]}, "scale_bounds"),
        ({"scale_bounds": [0.0, 2.0]}, "scale_bounds"),
        ({"scale_bounds": [0.9]}, "scale_bounds"),
        ({"scale_bounds": None}, "scale_bounds"),
    ],
)
def test_a_version_or_bounds_that_cannot_be_are_named(factory, changes, path):
    with pytest.raises(Malformed) as caught:
        read_thresholds({**factory.thresholds().record(), **changes})
    assert caught.value.path.startswith(f"$.thresholds.{path}")
