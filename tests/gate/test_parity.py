from __future__ import annotations

import math

import pytest
import torch

from flashrt.document.schema import problems
from flashrt.gate.judge import judge
from flashrt.gate.parity import distribution_window, token_window, value_window
from flashrt_runtime.reason import Reason, Refusal


@pytest.fixture
def logits():
    return torch.randn(70, 50, generator=torch.Generator().manual_seed(0)) * 4


def verdict(factory, window, **rule):
    body = factory.evidence(processes=0)
    body["parity"] = {
        "kind": "distribution" if "positions" in window else "value",
        "label": "held_out",
        "before": [window],
        "after": [window],
    }
    for control in ("empty_control", "path", "rollback", "poison", "integrity"):
        body[control] = factory.evidence(processes=1)[control]
    return judge(body, {**factory.thresholds().record(), **rule})


VALUES = {"metric": "cosine", "bands": {"pass": 0.999, "warn": 0.995}}


def test_equal_arms_agree_everywhere(logits):
    targets = logits.argmax(-1)
    found = distribution_window("f", logits, logits.clone(), targets)
    assert (found["positions"], found["top1_agree"], found["near_ties"]) == (70, 70, 0)
    assert (found["kl_sum"], found["kl_max"], found["max_abs"]) == (0, 0, 0)
    assert found["cosine_min"] == pytest.approx(1)
    assert (found["norm_ratio"], found["scale"], found["nonfinite"]) == ([1, 1], 1, 0)
    assert found["nll_host_sum"] == found["nll_treated_sum"]
    assert found["distinct"] == len(set(targets.tolist()))


def test_metrics_follow_their_definitions(logits):
    other = logits + torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))
    targets = torch.arange(70) % 50
    found = distribution_window("f", logits, other, targets)
    host, treated = logits.double(), other.double()
    p, q = host.softmax(-1), treated.softmax(-1)
    kl = (p * (p / q).log()).sum(-1)
    assert found["kl_sum"] == pytest.approx(float(kl.sum()), rel=1e-9)
    assert found["kl_max"] == pytest.approx(float(kl.max()), rel=1e-9)
    assert found["top1_agree"] == int((host.argmax(-1) == treated.argmax(-1)).sum())
    assert 0 < found["top1_agree"] < 70
    assert found["max_abs"] == float((host - treated).abs().max())
    assert found["scale"] == pytest.approx(float(treated.norm() / host.norm()))
    ratio = treated.norm(dim=-1) / host.norm(dim=-1)
    assert found["norm_ratio"] == pytest.approx([float(ratio.min()), float(ratio.max())])
    nll = -q[torch.arange(70), targets].log().sum()
    assert found["nll_treated_sum"] == pytest.approx(float(nll))


def test_windows_satisfy_the_receipt_s_schema(factory, logits):
    bad = logits.clone()
    bad[0, 0] = math.nan
    for window in (
        distribution_window("f", logits, logits),
        distribution_window("f", logits, bad),
        value_window("f", logits, logits),
        value_window("f", logits, bad),
    ):
        body = factory.receipt()
        kind = "distribution" if "positions" in window else "value"
        body["evidence"]["parity"] = {
            "kind": kind,
            "label": "held_out",
            "before": [window],
            "after": [window],
        }
        assert problems(body, "qualification_receipt") == []


def test_a_token_that_the_host_nearly_ties_with_its_own_is_reported_apart():
    host = torch.tensor([[5.0, 4.999, 0.0], [5.0, 1.0, 0.0]])
    treated = torch.tensor([[4.999, 5.0, 0.0], [1.0, 5.0, 0.0]])
    found = distribution_window("f", host, treated)
    assert (found["top1_agree"], found["near_ties"]) == (0, 1)


def test_a_near_tie_of_the_host_excuses_no_third_token():
    host = torch.tensor([[5.0, 4.999, 0.0]])
    found = distribution_window("f", host, torch.tensor([[4.9, 4.9, 5.0]]))
    assert (found["top1_agree"], found["near_ties"]) == (0, 0)


def bfloat16_rows():
    """Logits in bfloat16 whose first is 30 and whose second is one unit in the last place below."""
    host = torch.randn(32, 40, generator=torch.Generator().manual_seed(2)).bfloat16()
    host[torch.arange(32), torch.arange(32)] = 30.0
    host[torch.arange(32), torch.arange(32) + 1] = 29.875
    return host


def test_one_unit_in_the_last_place_of_bfloat16_at_thirty_passes(factory):
    host = bfloat16_rows()
    treated = host.clone()
    treated[torch.arange(32), torch.arange(32)] = 30.125
    found = distribution_window("f", host, treated)
    assert (found["max_abs"], found["top1_agree"]) == (0.125, 32)
    judged = verdict(factory, found)
    assert (judged["state"], judged["band"]) == ("supported_correct", "pass")


def test_one_unit_that_turns_every_first_and_second_round_passes_and_is_counted_apart(factory):
    host = bfloat16_rows()
    treated = host.clone()
    treated[torch.arange(32), torch.arange(32)] = 29.875
    treated[torch.arange(32), torch.arange(32) + 1] = 30.0
    found = distribution_window("f", host, treated)
    assert (found["top1_agree"], found["near_ties"]) == (0, 32)
    judged = verdict(factory, found)
    assert (judged["state"], judged["band"]) == ("supported_correct", "pass")
    numbers = judged["statistics"]["parity"]
    assert (numbers["top1_agreement"], numbers["top1_strict"], numbers["near_ties"]) == (1, 0, 32)


def test_three_units_in_the_last_place_are_no_tie(factory):
    host = bfloat16_rows()
    host[torch.arange(32), torch.arange(32) + 1] = 29.625
    treated = host.clone()
    treated[torch.arange(32), torch.arange(32)] = 29.5
    found = distribution_window("f", host, treated)
    assert (found["top1_agree"], found["near_ties"]) == (0, 0)
    assert verdict(factory, found)["band"] == "low"


def test_one_unit_in_the_last_place_of_every_value_at_thirty_passes(factory):
    signs = torch.randn(16, 24, generator=torch.Generator().manual_seed(3)).sign()
    host = (signs * 30.0).bfloat16()
    up = torch.randn(16, 24, generator=torch.Generator().manual_seed(4)).sign()
    treated = (host.float() + up * 0.125).bfloat16()
    found = value_window("f", host, treated)
    assert found["max_abs"] == 0.125
    judged = verdict(factory, found, **VALUES)
    assert (judged["state"], judged["band"]) == ("supported_correct", "pass")


def test_an_output_of_half_the_size_agrees_in_every_token_and_is_refused(factory, logits):
    found = distribution_window("f", logits, logits * 0.5)
    assert found["top1_agree"] == found["positions"]
    assert found["cosine_min"] == pytest.approx(1)
    judged = verdict(factory, found)
    assert judged["state"] == "unknown"
    assert {r["name"] for r in judged["reasons"]} == {"SCALE"}


def test_a_value_output_of_half_the_size_is_refused(factory, logits):
    judged = verdict(factory, value_window("f", logits, logits * 0.5), **VALUES)
    assert judged["state"] == "unknown"
    assert {r["name"] for r in judged["reasons"]} == {"SCALE"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("arm", [0, 1])
def test_one_value_that_is_not_finite_in_either_arm_is_refused(factory, logits, value, arm):
    arms = [logits.clone(), logits.clone()]
    arms[arm][3, 4] = value
    for window, rule in (
        (distribution_window("f", *arms), {}),
        (value_window("f", *arms), VALUES),
    ):
        assert window["nonfinite"] == 1
        judged = verdict(factory, window, **rule)
        assert judged["state"] == "unknown"
        assert {r["name"] for r in judged["reasons"]} == {"NONFINITE"}


def test_a_constant_output_is_refused(factory, logits):
    constant = logits[:1].expand(70, 50)
    found = distribution_window("f", logits, constant)
    assert found["distinct"] == 1
    judged = verdict(factory, found)
    assert judged["state"] == "unknown"
    assert "CONSTANT" in {r["name"] for r in judged["reasons"]}
    flat = value_window("f", logits, torch.full_like(logits, 0.5))
    assert "CONSTANT" in {r["name"] for r in verdict(factory, flat, **VALUES)["reasons"]}


def test_an_output_that_repeats_one_row_is_refused(factory, logits):
    repeated = value_window("f", logits, logits[:1].expand(70, 50))
    assert (repeated["distinct"], repeated["rows_alike"]) == (50, True)
    assert "CONSTANT" in {r["name"] for r in verdict(factory, repeated, **VALUES)["reasons"]}
    assert not value_window("f", logits, logits)["rows_alike"]
    assert not value_window("f", logits[:1], logits[:1])["rows_alike"]


def test_softmax_against_zeros_is_refused_whichever_arm_is_zero(factory, logits):
    softmax, zeros = logits.softmax(-1), torch.zeros_like(logits)
    for host, treated in ((softmax, zeros), (zeros, softmax)):
        judged = verdict(factory, value_window("f", host, treated), **VALUES)
        assert judged["state"] == "unknown"
        assert "SCALE" in {r["name"] for r in judged["reasons"]}


def test_outputs_are_told_apart_by_their_bytes(logits):
    one, same, other = (value_window("f", logits, t) for t in (logits, logits.clone(), -logits))
    assert one["treated"] == same["treated"] != other["treated"]
    flat = value_window("f", logits.flatten(), logits.flatten())
    assert flat["treated"] != one["treated"]


def test_rows_of_zeros_agree_only_with_zeros():
    zero, one = torch.zeros(1, 4), torch.ones(1, 4)
    both = value_window("f", zero, zero)
    assert (both["cosine"], both["norm_ratio"], both["scale"]) == (1, [1, 1], 1)
    for host, treated in ((zero, one), (one, zero)):
        found = value_window("f", host, treated)
        assert (found["cosine"], found["norm_ratio"], found["scale"]) == (0, [0, 0], 0)


@pytest.mark.parametrize("measure", [distribution_window, value_window])
def test_outputs_of_another_shape_or_dtype_or_none_at_all_are_refused(measure, logits):
    with pytest.raises(Refusal) as shape:
        measure("f", logits, logits[:, :-1])
    with pytest.raises(Refusal) as dtype:
        measure("f", logits, logits.double())
    with pytest.raises(Refusal) as empty:
        measure("f", logits[:0], logits[:0])
    reasons = [shape.value.reason, dtype.value.reason, empty.value.reason]
    assert reasons == [Reason.SHAPE, Reason.DTYPE, Reason.EMPTY_CORPUS]
    assert shape.value.subject == "f"


def test_logits_have_two_dims_and_a_target_for_each_position(logits):
    with pytest.raises(Refusal) as flat:
        distribution_window("f", logits[0], logits[0])
    with pytest.raises(Refusal) as short:
        distribution_window("f", logits, logits, torch.zeros(3, dtype=torch.long))
    assert [flat.value.reason, short.value.reason] == [Reason.SHAPE, Reason.SHAPE]


def test_tokens_are_identical_or_the_first_that_is_not_is_named():
    same = token_window("f", [4, 5, 6], [4, 5, 6])
    assert (same["tokens"], same["identical"], same["first_difference"]) == (3, 3, None)
    other = token_window("f", [4, 5, 6, 7], [4, 9, 6, 9])
    assert (other["identical"], other["first_difference"], other["distinct"]) == (2, 1, 3)


@pytest.mark.parametrize(
    ("host", "treated", "reason"),
    [([], [], Reason.EMPTY_CORPUS), ([1], [], Reason.SHAPE), ([1], [1, 2], Reason.SHAPE)],
)
def test_no_tokens_or_another_number_of_them_are_refused(host, treated, reason):
    with pytest.raises(Refusal) as caught:
        token_window("f", host, treated)
    assert (caught.value.reason, caught.value.subject) == (reason, "f")


def test_a_value_may_be_a_scalar():
    found = value_window("f", torch.tensor(2.0), torch.tensor(2.0))
    assert (found["elements"], found["cosine"]) == (1, 1)
