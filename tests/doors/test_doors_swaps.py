"""``auto_swaps`` in its calling forms, its notes, and ``get(...).bind``."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch

import flashrt as structures
from flashrt_runtime import swap
from flashrt_runtime.reason import Reason, Refusal


def refused(reason, act):
    with pytest.raises(Refusal) as caught:
        act()
    assert caught.value.reason is reason, str(caught.value)
    return caught.value


def test_the_package_imports_no_torch_and_every_door_is_there():
    code = (
        "import sys; import flashrt as structures; "
        "print(sorted({'torch', 'numpy', 'transformers'} & set(sys.modules))); "
        "print([callable(getattr(structures, name)) for name in structures.__all__])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == "[]"
    assert "False" not in second
    with pytest.raises(AttributeError, match="no attribute 'open'"):
        _ = structures.open


def test_one_closure_is_one_sample(net, frames):
    plan = structures.auto_swaps(net, lambda: net(frames[0]), scheme="int8_static")
    assert plan.notes["calibration"]["samples"] == 1
    assert plan.notes["rows"] == [4, 4]
    assert plan.scheme == "int8_static"
    assert {s.seam.structure for s in plan.swaps} >= {"decoder_ffn@1"}


def test_a_feed_with_observations_is_one_sample_each(net, frames):
    plan = structures.auto_swaps(net, net, observations=frames, scheme="int8_static")
    assert plan.notes["calibration"]["samples"] == len(frames)
    fewer = structures.auto_swaps(
        net, net, observations=frames, scheme="int8_static", percentile=95.0, max_samples=3
    )
    assert fewer.notes["calibration"]["samples"] == 3
    assert fewer.notes["calibration"]["percentile"]["asked"] == 95.0


def test_a_list_of_closures_is_one_sample_each(net, frames):
    closures = [lambda frame=frame: net(frame) for frame in frames]
    listed = structures.auto_swaps(net, closures, scheme="int8_static")
    fed = structures.auto_swaps(net, net, observations=frames, scheme="int8_static")
    assert listed.precision_spec.seams == fed.precision_spec.seams
    assert listed.precision_spec.workload.digest is None, "what a closure feeds cannot be seen"
    assert fed.precision_spec.workload.digest.startswith("sha256:")
    assert listed.notes["calibration"]["samples"] == len(frames)


def test_nothing_is_attached_and_the_model_is_as_it_was(net, frames):
    before = {key: value.clone() for key, value in net.state_dict().items()}
    modules = list(net.modules())
    expected = net(frames[0])
    structures.auto_swaps(net, net, observations=frames, scheme="fp16_weight")
    assert all(a is b for a, b in zip(net.modules(), modules, strict=True))
    assert all(torch.equal(net.state_dict()[key], value) for key, value in before.items())
    assert torch.equal(net(frames[0]), expected)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_the_calibration_note_says_how_the_scales_came_to_be(net, frames, capsys):
    plan = structures.auto_swaps(
        net, net, observations=frames, scheme="int8_static", percentile=99.9, verbose=True
    )
    note = plan.notes["calibration"]
    assert set(note) >= {"method", "samples", "percentile", "dispersion"}
    assert note["percentile"]["asked"] == 99.9
    assert note["percentile"]["effective"] <= 100.0
    seams = plan.precision_spec.seams
    points = {f"{name}:{point}" for name, seam in seams.items() for point in seam.scales}
    assert points
    assert points <= set(note["dispersion"])
    assert note["summary"] in capsys.readouterr().out
    for seam in seams.values():
        assert all(scale > 0 and math.isfinite(scale) for scale in seam.scales.values())
    quiet = structures.auto_swaps(net, net, observations=frames, scheme="int8_static")
    assert capsys.readouterr().out == ""
    assert quiet.notes["calibration"]["summary"] == note["summary"]


def test_a_scheme_that_keeps_seams_says_which_and_why(net, frames):
    plan = structures.auto_swaps(net, net, observations=frames, scheme="w8a16_decode")
    bound = {s.seam.id for s in plan.swaps}
    assert bound
    assert any("head" in because.subject for because in plan.kept)
    assert not bound & {because.subject for because in plan.kept}


def test_auto_is_no_quantisation_on_a_cpu(llama):
    model = llama()
    plan = structures.auto_swaps(model, lambda: model(torch.arange(4)[None]))
    assert plan.scheme == "none"
    assert {s.seam.structure for s in plan.swaps} == {"qkv_pack@1"}
    assert all(not seam.scales for seam in plan.precision_spec.seams.values())


@pytest.mark.parametrize(
    ("forward", "observations", "reason"),
    [
        (None, None, Reason.CONFLICT),
        (5, None, Reason.CONFLICT),
        ([], None, Reason.CONFLICT),
        ("text", None, Reason.CONFLICT),
        ([print, 5], None, Reason.CONFLICT),
        ([print], [1], Reason.CONFLICT),
        (print, [], Reason.EMPTY_CORPUS),
    ],
)
def test_any_other_call_is_refused(net, forward, observations, reason):
    refused(reason, lambda: structures.auto_swaps(net, forward, observations=observations))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"scheme": "fp3_magic"}, Reason.CONFLICT),
        ({"percentile": 0.0}, Reason.PERCENTILE),
        ({"percentile": 100.1}, Reason.PERCENTILE),
        ({"percentile": math.nan}, Reason.PERCENTILE),
        ({"max_samples": 0}, Reason.CONFLICT),
    ],
)
def test_arguments_that_make_no_sense_are_refused(net, frames, given, reason):
    words = {"scheme": "int8_static"} | given
    refused(reason, lambda: structures.auto_swaps(net, net, observations=frames, **words))


def test_a_host_without_a_seam_is_refused():
    model = torch.nn.Sequential(torch.nn.ReLU()).eval()
    refused(Reason.STRUCTURE, lambda: structures.auto_swaps(model, lambda: model(torch.ones(1, 2))))


def test_a_training_host_is_refused(net, frames):
    net.train()
    words = {"observations": frames, "scheme": "fp16_weight"}
    refused(Reason.TRAINING, lambda: structures.auto_swaps(net, net, **words))
    refused(Reason.TRAINING, lambda: structures.attach(net, net, **words))


def test_the_callers_own_gate_reads_the_ledger(net, frames):
    expected = net(frames[0])
    plan = structures.auto_swaps(net, [lambda: net(frames[0]), lambda: net(frames[1])],
                                 scheme="fp16_weight")  # fmt: skip
    handle = swap.attach(net, plan.swaps, on_guard_fail="raise")
    out = net(frames[0])
    assert not torch.equal(out, expected)
    assert torch.nn.functional.cosine_similarity(out, expected).min() > 0.999
    assert handle.summary()["clean"]
    handle.raise_on_fallback()
    assert {report.calls for report in handle.report().values()} == {1}
    handle.detach()
    assert torch.equal(net(frames[0]), expected)


def test_a_region_is_bound_to_one_module_by_hand(gated, frames):
    body = structures.get("decoder_ffn").bind(gated, calibration=[frames[0]])
    expected = gated(frames[1])
    seen = body(frames[1])
    assert seen.shape == expected.shape
    assert not torch.equal(seen, expected)
    assert torch.nn.functional.cosine_similarity(seen, expected).min() > 0.9999
    assert torch.equal(gated(frames[1]), expected)
    assert structures.get("decoder_ffn@1").spec.digest == structures.get("decoder_ffn").spec.digest


def test_a_region_with_scales_takes_them_from_its_calibration(gated, frames):
    region = structures.get("decoder_ffn")
    body = region.bind(gated, calibration=frames, scheme="int8_static")
    loud = region.bind(gated, calibration=[100 * f for f in frames], scheme="int8_static")
    expected = gated(frames[0])
    cosine = torch.nn.functional.cosine_similarity
    assert cosine(body(frames[0]), expected).min() > 0.99
    assert cosine(loud(frames[0]), expected).min() < cosine(body(frames[0]), expected).min()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_structure", Reason.STRUCTURE),
        ("decoder_ffn@99", Reason.STRUCTURE),
        ("autoregressive_decode_pipeline", Reason.STRUCTURE),
    ],
)
def test_what_is_no_region_cannot_be_got(name, reason):
    refused(reason, lambda: structures.get(name))


def test_a_module_that_is_not_that_one_seam_is_refused(net, gated, frames):
    region = structures.get("decoder_ffn")
    several = refused(Reason.STRUCTURE, lambda: region.bind(net, calibration=[frames[0]]))
    assert "2 seams bind here" in several.what
    plain = torch.nn.Sequential(torch.nn.Linear(64, 64)).eval()
    refused(Reason.STRUCTURE, lambda: region.bind(plain, calibration=[frames[0]]))
    refused(Reason.EMPTY_CORPUS, lambda: region.bind(gated, calibration=[]))
    refused(
        Reason.STRUCTURE,
        lambda: structures.get("qkv_pack").bind(gated, calibration=[frames[0]]),
    )
    gated.train()
    refused(Reason.TRAINING, lambda: region.bind(gated, calibration=[frames[0]]))


def test_a_step_is_captured_and_replayed_over_its_windows(net, frames):
    expected = [net(frame) for frame in frames[:2]]
    stage = structures.capture(net, windows={"x": frames[0]}, form=("eager",))
    assert torch.equal(stage.replay(), expected[0])
    assert torch.equal(stage.replay(x=frames[1]), expected[1])
    assert stage.replays == 2
    refused(Reason.SHAPE, lambda: stage.replay(x=frames[0][:1]))
    refused(Reason.FORM, lambda: structures.capture(net, windows={}, form=("tape",)))


def test_a_binding_is_loaded_by_name():
    assert structures.load_binding("smollm2", require_pipeline_coverage=True).name == "smollm2"
