"""The verdict: which gate a cell fails, which band it is in, and whether its race was decided."""

from __future__ import annotations

import copy
import json

import pytest

from flashrt.gate.judge import judge
from flashrt_runtime.reason import Reason


def names(verdict):
    return [Reason.of(because["code"]).name for because in verdict["reasons"]]


def each(evidence, **changes):
    for when in ("before", "after"):
        for window in evidence["parity"][when]:
            window.update(changes)
    return evidence


def test_whole_evidence_of_a_clear_win_is_certified(evidence, gate):
    verdict = judge(evidence, gate.record())
    assert (verdict["state"], verdict["band"], verdict["reasons"]) == ("certified_fast", "pass", [])
    assert verdict["statistics"]["speedup"]["low"] > 1.02


def test_the_verdict_is_the_same_after_a_trip_through_json(evidence, gate):
    first = judge(evidence, gate.record())
    again = judge(json.loads(json.dumps(evidence)), json.loads(json.dumps(gate.record())))
    assert first == again


def test_judging_changes_neither_evidence_nor_thresholds(evidence, gate):
    before, rule = copy.deepcopy(evidence), gate.record()
    judge(evidence, rule)
    assert evidence == before
    assert rule == gate.record()


def unequal(factory, key):
    def change(body):
        body[key][1]["digests"] = [factory.digest("a"), factory.digest("b")]

    return change


def test_a_host_that_does_not_repeat_itself_is_unknown(factory, evidence, gate):
    unequal(factory, "empty_control")(evidence)
    verdict = judge(evidence, gate.record())
    assert (verdict["state"], names(verdict)) == ("unknown", ["EMPTY_CONTROL"])
    assert verdict["reasons"][0]["subject"] == "process 1"


def test_a_host_that_does_not_come_back_is_unknown(factory, evidence, gate):
    unequal(factory, "rollback")(evidence)
    verdict = judge(evidence, gate.record())
    assert (verdict["state"], names(verdict)) == ("unknown", ["ROLLBACK"])


SEAM = "model.layers.0.mlp"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda run: run["graph_calls"].pop(SEAM), "NEVER_CALLED"),
        (lambda run: run["graph_calls"].update({SEAM: 0}), "NEVER_CALLED"),
        (lambda run: run["graph_calls"].update({SEAM: 2}), "FORM"),
        (lambda run: run["graph_calls"].update({"other": 1}), "FORM"),
        (lambda run: run.update(replays=0), "NEVER_CALLED"),
        (lambda run: run.update(fallbacks=1), "FALLBACK"),
        (lambda run: run.update(expected={}, graph_calls={}), "NEVER_CALLED"),
    ],
)
def test_a_path_that_did_not_run_as_planned_is_unknown(evidence, gate, change, reason):
    change(evidence["path"][2])
    verdict = judge(evidence, gate.record())
    assert (verdict["state"], names(verdict)) == ("unknown", [reason])
    assert "process 2" in verdict["reasons"][0]["subject"]


def test_calls_dispatched_to_the_host_by_design_are_clean(evidence, gate):
    evidence["path"][0]["dispatched"] = 40
    assert judge(evidence, gate.record())["state"] == "certified_fast"


@pytest.mark.parametrize(
    ("flag", "reason"), [("outputs_rewritten", "NEVER_CALLED"), ("inputs_honoured", "CONSTANT")]
)
def test_a_replay_that_does_no_work_is_unknown(evidence, gate, flag, reason):
    evidence["poison"][0][flag] = False
    verdict = judge(evidence, gate.record())
    assert (verdict["state"], names(verdict)) == ("unknown", [reason])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nonfinite": 1}, "NONFINITE"),
        ({"scale": 0.5}, "SCALE"),
        ({"scale": 2.0}, "SCALE"),
        ({"kl_max": None}, "INCOMPLETE"),
        ({"cosine_min": None}, "INCOMPLETE"),
        ({"scale": None}, "INCOMPLETE"),
    ],
)
def test_a_wrong_output_is_unknown_before_and_after_the_race(evidence, gate, when, change, reason):
    evidence["parity"][when][1].update(change)
    verdict = judge(evidence, gate.record())
    assert (verdict["state"], names(verdict)) == ("unknown", [reason])
    assert when in verdict["reasons"][0]["subject"]


def test_a_constant_output_is_unknown(evidence, gate):
    verdict = judge(each(evidence, distinct=1), gate.record())
    assert (verdict["state"], set(names(verdict))) == ("unknown", {"CONSTANT"})


def test_no_frame_is_no_parity(evidence, gate):
    evidence["parity"].update(before=[], after=[])
    verdict = judge(evidence, gate.record())
    assert (verdict["state"], verdict["band"]) == ("unknown", "none")
    assert names(verdict) == ["EMPTY_CORPUS"]


@pytest.mark.parametrize(
    ("agree", "band", "state"),
    [
        (61, "pass", "certified_fast"),
        (60, "warn", "certified_fast"),
        (55, "warn", "certified_fast"),
        (54, "low", "supported_correct"),
        (0, "low", "supported_correct"),
    ],
)
def test_bands_of_agreement(evidence, gate, agree, band, state):
    verdict = judge(each(evidence, top1_agree=agree, near_ties=0), gate.record())
    assert (verdict["band"], verdict["state"]) == (band, state)
    assert names(verdict) == (["BAND_LOW"] if band == "low" else [])


def test_the_worse_of_both_parity_runs_counts(evidence, gate):
    for window in evidence["parity"]["after"]:
        window["top1_agree"] = 56
    verdict = judge(evidence, gate.record())
    assert verdict["band"] == "warn"
    assert verdict["statistics"]["parity"]["top1_strict"] == 0.875


@pytest.mark.parametrize(
    ("cosine", "band"), [(0.999, "pass"), (0.9989, "warn"), (0.995, "warn"), (0.9949, "low")]
)
def test_bands_of_values(factory, evidence, cosine, band):
    window = {
        "frame": "f",
        "elements": 100,
        "cosine": cosine,
        "max_abs": 0.1,
        "norm_ratio": [1.0, 1.0],
        "scale": 1.0,
        "nonfinite": 0,
        "distinct": 90,
    }
    evidence["parity"] = {
        "kind": "value",
        "label": "held_out",
        "before": [window],
        "after": [window],
    }
    rule = factory.thresholds().record()
    rule |= {"metric": "cosine", "bands": {"pass": 0.999, "warn": 0.995}}
    assert judge(evidence, rule)["band"] == band


def test_a_low_band_is_certified_only_under_a_floor_on_its_own_metric(factory, evidence):
    each(evidence, top1_agree=40)
    stated = factory.thresholds(floors={"top1_agreement": 0.6})
    other = factory.thresholds(floors={"kl_mean": 1.0})
    assert judge(evidence, stated.record())["state"] == "certified_fast"
    assert judge(evidence, other.record())["state"] == "supported_correct"


@pytest.mark.parametrize(
    "floors",
    [
        {"top1_agreement": 0.99},
        {"top1_strict": 0.97},
        {"worst_value": 0.99},
        {"cosine": 0.9999},
        {"kl_mean": 1e-4},
        {"kl_max": 1e-4},
        {"max_abs": 0.5},
        {"perplexity_ratio": 1.001},
        {"token_identity": 0.0},
    ],
)
def test_a_floor_that_is_not_met_is_unknown(factory, evidence, floors):
    verdict = judge(evidence, factory.thresholds(floors=floors).record())
    assert (verdict["state"], set(names(verdict))) == ("unknown", {"FLOOR"})


def test_a_floor_on_something_that_was_not_measured_is_not_met(factory, evidence):
    each(evidence, nll_host_sum=None)
    verdict = judge(evidence, factory.thresholds(floors={"perplexity_ratio": 2.0}).record())
    assert set(names(verdict)) == {"FLOOR"}


def test_parity_on_calibration_frames_never_certifies(evidence, gate):
    evidence["parity"]["label"] = "fit_residual"
    verdict = judge(evidence, gate.record())
    assert (verdict["state"], names(verdict)) == ("supported_correct", ["EMPTY_CORPUS"])
    assert verdict["statistics"]["parity"]["label"] == "fit_residual"


def test_a_loss_is_supported_with_its_reason(factory, gate):
    verdict = judge(factory.evidence(ratio=0.8), gate.record())
    assert (verdict["state"], set(names(verdict))) == ("supported_correct", {"LOSS"})


def test_an_undecided_race_is_supported_with_its_reason(factory, gate):
    body = factory.evidence(ratio=1.02, noise=0.004)
    verdict = judge(body, gate.record())
    assert verdict["state"] == "supported_correct"
    assert "AMBIGUOUS" in names(verdict)


def test_a_noisy_machine_is_supported_with_its_reason(factory, gate):
    verdict = judge(factory.evidence(ratio=1.5, noise=0.08), gate.record())
    assert (verdict["state"], set(names(verdict))) == ("supported_correct", {"NOISE"})


def test_one_process_that_does_not_agree_is_enough(factory, evidence, gate):
    evidence["processes"][1]["race"] = factory.series(5, 0.99, gate)
    verdict = judge(evidence, gate.record())
    assert (verdict["state"], names(verdict)) == ("supported_correct", ["LOSS"])


def test_two_processes_certify_nothing(factory, gate):
    verdict = judge(factory.evidence(processes=2), gate.record())
    assert (verdict["state"], names(verdict)) == ("supported_correct", ["INCOMPLETE"])


def test_correctness_alone_is_supported(evidence, gate):
    evidence["processes"] = []
    verdict = judge(evidence, gate.record())
    assert (verdict["state"], names(verdict)) == ("supported_correct", ["INCOMPLETE"])
    assert verdict["statistics"]["speedup"] is None


@pytest.mark.parametrize("control", ["empty_control", "path", "rollback", "poison"])
def test_a_process_without_its_controls_is_unknown(evidence, gate, control):
    evidence[control].pop()
    verdict = judge(evidence, gate.record())
    assert (verdict["state"], names(verdict)) == ("unknown", ["INCOMPLETE"])
    assert verdict["reasons"][0]["subject"] == control


def test_one_process_cannot_be_counted_three_times(evidence, gate):
    evidence["processes"] = [evidence["processes"][0]] * 3
    assert judge(evidence, gate.record())["state"] == "unknown"


def test_an_interrupted_measurement_is_unknown(evidence, gate):
    evidence["incomplete"] = "interrupted in process 2"
    verdict = judge(evidence, gate.record())
    assert (verdict["state"], names(verdict)) == ("unknown", ["INCOMPLETE"])
    assert verdict["reasons"][0]["detail"] == "interrupted in process 2"


@pytest.mark.parametrize("peak", ["peak_flops", "peak_bytes_per_s"])
def test_faster_than_the_roofline_is_unknown(evidence, gate, peak):
    evidence["cost"][peak] = 1e6
    verdict = judge(evidence, gate.record())
    assert (verdict["state"], set(names(verdict))) == ("unknown", {"IMPLAUSIBLE"})


def test_an_unknown_peak_bounds_nothing(evidence, gate):
    evidence["cost"].update(peak_flops=None, peak_bytes_per_s=None)
    assert judge(evidence, gate.record())["state"] == "certified_fast"


def test_the_ratio_to_the_host_in_another_dtype_is_what_the_win_is_worth_there(evidence, gate):
    evidence["dtype_hosts"] = [{"dtype": "bfloat16", "pairs": [[30, 15]] * 5}]
    numbers = judge(evidence, gate.record())["statistics"]
    assert numbers["dtype_ratio"]["bfloat16"] == pytest.approx(numbers["speedup"]["median"] / 2)
