import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from flashrt.calibration import Calibration, calibrate
from flashrt.calibration.statistic import Granularity, Kind, Statistic
from flashrt.document.schema import require
from flashrt.host.corpus import folder_corpus
from flashrt.host.discovery import discover
from flashrt.host.frames import text_frames
from flashrt.scheme import registry
from flashrt.scheme.decision import Bind, Decision, KeepHost, Site
from flashrt.scheme.needs import check_statistics
from flashrt.scheme.places import find_heads, overlap
from flashrt.scheme.plan import Plan, plan
from flashrt_runtime.contract import Seam
from flashrt_runtime.identity import checkpoint_digest
from flashrt_runtime.reason import Reason, Refusal

ZERO = "sha256:" + "0" * 64


def artifact(model: nn.Module) -> dict[str, Any]:
    digest = checkpoint_digest(model.state_dict().items())
    return {
        "name": "tiny",
        "family": "llama",
        "checkpoint_digest": digest,
        "dtype": "float32",
        "tokenizer_digest": None,
        "parameters": 1,
        "provenance": "a test",
    }


SERVED = {
    "decoder_ffn@1": ("x_after_norm", "act_after_mul"),
    "linear_proj@1": ("x",),
    "qkv_pack@1": ("x",),
}


def select(
    structure: str,
    scheme: str,
    device: str,
    rows: int,
    variant: Mapping[str, str],
    *,
    dtype: str | None = None,
) -> Any:
    """Stands for the impl loader: one form a scheme, on the CPU."""
    if structure not in SERVED:
        raise Refusal(Reason.STRUCTURE, "no impl executes this structure", subject=structure)
    if device != "cpu":
        raise Refusal(Reason.ARCH, f"no impl on {device}", subject=structure)
    how = "static" if "_static" in scheme else "none"
    spec = SimpleNamespace(points=dict.fromkeys(SERVED[structure], how))
    return SimpleNamespace(backend=f"cpu_{scheme}", form="general", spec=spec)


@dataclass(frozen=True)
class Case:
    model: nn.Module
    seams: tuple[Seam, ...]
    calibration: Calibration


@pytest.fixture
def case(llama: Callable[..., nn.Module], tokenizer: Any, text_folder: Path) -> Case:
    model = llama(tie_word_embeddings=True)
    corpus = folder_corpus(text_folder)
    split = text_frames(tokenizer, corpus, window=16, samples=4, held_out=2)
    seams = discover(model, lambda: model(torch.arange(12)[None])).seams
    made = calibrate(
        model,
        seams,
        split.calibration,
        model_artifact=artifact(model),
        workload=split.workload(),
        specs={"decoder_ffn@1": ZERO, "linear_proj@1": ZERO, "qkv_pack@1": ZERO},
    )
    return Case(model, seams, made)


def outcome(made: Plan) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for seam in made.bound:
        found.setdefault(seam.seam.structure, set()).add(seam.seam.id)
    return found


FFN = {f"model.layers.{i}.mlp" for i in (0, 1)}
ATTENTION = {f"model.layers.{i}.self_attn.{n}_proj" for i in (0, 1) for n in "qkvo"}
PACKS = {f"model.layers.{i}.self_attn.qkv" for i in (0, 1)}


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("none", {"qkv_pack@1": PACKS}),
        ("auto", {"qkv_pack@1": PACKS}),
        ("fp16_weight", {"decoder_ffn@1": FFN, "linear_proj@1": ATTENTION | {"lm_head"}}),
        ("w8a16_decode", {"decoder_ffn@1": FFN, "linear_proj@1": ATTENTION}),
        ("int8_static", {"decoder_ffn@1": FFN, "linear_proj@1": ATTENTION}),
        ("fp8_static", {"decoder_ffn@1": FFN, "linear_proj@1": ATTENTION}),
    ],
)
def test_what_each_scheme_takes(case: Case, scheme: str, expected: dict[str, set[str]]) -> None:
    made = plan(scheme, case.seams, case.calibration, select=select)
    assert outcome(made) == expected
    assert len(made.seams) == len(case.seams)
    assert all(s.decision.because.detail for s in made.seams if isinstance(s.decision, KeepHost))


@pytest.mark.parametrize("scheme", registry.names())
def test_seams_that_bind_never_overlap(case: Case, scheme: str) -> None:
    made = plan(scheme, case.seams, case.calibration, select=select)
    paths = [m for s in made.bound for m in s.seam.members.values()]
    assert len(paths) == len(set(paths))
    assert not any(a != b and a.startswith(f"{b}.") for a in paths for b in paths)


@pytest.mark.parametrize(("scheme", "largest"), [("int8_static", 127.0), ("fp8_static", 448.0)])
def test_a_scale_is_amax_over_the_largest_value(case: Case, scheme: str, largest: float) -> None:
    made = plan(scheme, case.seams, case.calibration, select=select)
    ffn = next(s for s in made.bound if s.seam.id == "model.layers.0.mlp")
    points = case.calibration.of(ffn.seam)
    assert isinstance(ffn.decision, Bind)
    assert ffn.decision.scales == {
        name: (point.amax or 0.0) / largest for name, point in points.items()
    }
    assert made.calibration == case.calibration.digest


@pytest.mark.parametrize("scheme", ["none", "fp16_weight", "w8a16_decode"])
def test_a_scheme_that_measures_nothing_names_no_calibration(case: Case, scheme: str) -> None:
    assert plan(scheme, case.seams, case.calibration, select=select).calibration is None
    assert plan(scheme, case.seams, select=select).calibration is None


@pytest.mark.parametrize("scheme", ["int8_static", "int8_static_keep_outliers", "fp8_static"])
def test_a_static_scheme_without_a_calibration_is_refused(case: Case, scheme: str) -> None:
    with pytest.raises(Refusal, match="flashrt calibrate") as caught:
        plan(scheme, case.seams, select=select)
    assert caught.value.reason is Reason.UNCALIBRATED


def test_the_decode_band_ends_at_sixteen_rows(case: Case) -> None:
    assert outcome(plan("w8a16_decode", case.seams, rows=16, select=select))
    made = plan("w8a16_decode", case.seams, rows=17, select=select)
    assert outcome(made) == {}
    assert {b.reason for b in made.refused} == {Reason.SHAPE}


def _with(calibration: Calibration, seam: str, point: str, **changes: Any) -> Calibration:
    points = dict(calibration.points)
    points[(seam, point)] = replace(points[(seam, point)], **changes)
    return replace(calibration, points=points)


def test_an_outlier_keeps_the_host_only_under_the_rule_that_says_so(case: Case) -> None:
    seam = "model.layers.1.mlp"
    wild = _with(case.calibration, seam, "act_after_mul", amax=case.calibration.limit * 1.01)
    assert seam in outcome(plan("int8_static", case.seams, wild, select=select))["decoder_ffn@1"]
    made = plan("int8_static_keep_outliers", case.seams, wild, select=select)
    assert outcome(made)["decoder_ffn@1"] == {"model.layers.0.mlp"}
    kept = next(s for s in made.seams if s.seam.id == seam)
    assert isinstance(kept.decision, KeepHost)
    assert kept.decision.because.reason is Reason.OUTLIER
    at_limit = _with(case.calibration, seam, "act_after_mul", amax=case.calibration.limit)
    made = plan("int8_static_keep_outliers", case.seams, at_limit, select=select)
    assert seam in outcome(made)["decoder_ffn@1"]


@pytest.mark.parametrize("scheme", ["int8_static", "int8_static_keep_outliers", "fp8_static"])
@pytest.mark.parametrize("verdict", ["DEAD", "UNCALIBRATED"])
def test_a_point_without_a_scale_keeps_the_host(case: Case, scheme: str, verdict: str) -> None:
    from flashrt.calibration.reduce import Verdict

    seam = "model.layers.0.self_attn.o_proj"
    without = _with(case.calibration, seam, "x", amax=None, verdict=Verdict[verdict])
    made = plan(scheme, case.seams, without, select=select)
    kept = next(s for s in made.seams if s.seam.id == seam)
    assert isinstance(kept.decision, KeepHost)
    assert kept.decision.because.reason is Reason[verdict]
    assert kept.record()["scales"] == {}


def test_a_point_missing_from_the_calibration_keeps_the_host(case: Case) -> None:
    points = {k: v for k, v in case.calibration.points.items() if k[0] != "model.layers.0.mlp"}
    made = plan("int8_static", case.seams, replace(case.calibration, points=points), select=select)
    kept = next(s for s in made.seams if s.seam.id == "model.layers.0.mlp")
    assert isinstance(kept.decision, KeepHost)
    assert kept.decision.because.reason is Reason.UNCALIBRATED


def test_a_device_without_impls_keeps_the_host_and_says_so(case: Case) -> None:
    made = plan("fp16_weight", case.seams, device="sm90", select=select)
    assert made.bound == ()
    assert {b.reason for b in made.refused} == {Reason.ARCH}


def test_two_forms_that_both_serve_are_not_hidden(case: Case) -> None:
    def both(*_args: Any, **_words: Any) -> Any:
        raise Refusal(Reason.AMBIGUOUS, "two forms fit")

    with pytest.raises(Refusal) as caught:
        plan("fp16_weight", case.seams, select=both)
    assert caught.value.reason is Reason.AMBIGUOUS


def test_the_record_is_a_plan(case: Case) -> None:
    for scheme in registry.names():
        made = plan(scheme, case.seams, case.calibration, select=select)
        record = made.record(
            model_artifact=artifact(case.model),
            binding={"name": "tiny", "digest": ZERO},
            binding_manifest={},
        )
        require(record, "plan")
        assert {s["outcome"] for s in record["seams"]} <= {"bind", "keep_host"}
        for seam in record["seams"]:
            assert (seam["impl"] is None) == (seam["outcome"] == "keep_host")
            assert (seam["reason"] is None) == (seam["outcome"] == "bind")


def test_the_installed_impls_serve_every_scheme(case: Case) -> None:
    for scheme in registry.names():
        made = plan(scheme, case.seams, case.calibration, rows=1)
        assert made.bound, scheme
        assert made.refused == (), scheme


def test_the_head_is_found_by_where_it_sits(case: Case) -> None:
    assert find_heads(case.seams) == {"lm_head"}
    renamed = [replace(s, id=f"inner.{s.id}") for s in case.seams]
    assert find_heads(renamed) == {"inner.lm_head"}
    one_layer = [s for s in case.seams if ".1." not in s.id]
    assert find_heads(one_layer) == {"lm_head"}
    assert find_heads(case.seams[:1]) == frozenset()


def test_a_module_inside_a_bound_one_is_covered(case: Case) -> None:
    by_id = {s.id: s for s in case.seams}
    ffn = by_id["model.layers.0.mlp"]
    inside = replace(ffn, id="x", members={"self": "model.layers.0.mlp.up_proj"})
    covered = {"model.layers.0.mlp": "ffn"}
    assert overlap(inside, covered) == "ffn"
    assert overlap(by_id["lm_head"], covered) is None
    assert overlap(ffn, {"model.layers.0.mlp.up_proj": "up"}) == "up"
    assert overlap(replace(ffn, members={"self": "model.layers.0.mlp2"}), covered) is None


def test_auto_is_none_on_a_cpu_and_fp8_where_the_device_has_it() -> None:
    assert registry.resolve("auto", "cpu") == "none"
    assert registry.resolve("auto", "sm90") == "fp8_static"
    assert registry.resolve("auto", "sm80") == "none"
    assert registry.resolve("auto", "gfx942") == "none"
    assert registry.resolve("int8_static", "sm90") == "int8_static"


def test_an_unknown_scheme_lists_the_known_ones() -> None:
    with pytest.raises(Refusal, match="auto, none, bf16_structural, fp16_weight") as caught:
        registry.get("int4")
    assert caught.value.reason is Reason.CONFLICT


@dataclass(frozen=True)
class Per:
    granularity: Granularity

    def statistics(self, seam: Seam) -> Mapping[str, Statistic | None]:
        return dict.fromkeys(seam.points, Statistic(Kind.AMAX, self.granularity))

    def decide(self, seam: Seam, reduced: Mapping[str, Any], site: Site) -> Decision:
        return Bind()


def test_a_statistic_that_nothing_measures_fails_when_planning(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Refusal, match="collector for amax per block_32") as caught:
        check_statistics(Per(Granularity.BLOCK_32), case.seams)
    assert caught.value.reason is Reason.PERCENTILE
    module = importlib.import_module("flashrt.scheme.plan")
    monkeypatch.setattr(module, "get", lambda name: Per(Granularity.CHANNEL))
    with pytest.raises(Refusal, match="holds amax per tensor") as caught:
        plan("channel_static", case.seams, case.calibration, select=select)
    assert caught.value.reason is Reason.PERCENTILE
    assert "collector for amax per channel" in str(caught.value)
