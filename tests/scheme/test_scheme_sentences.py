"""What the brief says of schemes, sentence by sentence, against the code."""

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

import flashrt as structures
from flashrt.calibration.kinds import Address
from flashrt.calibration.reduce import PointRecord, Verdict
from flashrt.calibration.statistic import AMAX, Statistic
from flashrt.scheme import registry
from flashrt.scheme.decision import Bind, Decision, KeepHost, Site
from flashrt.scheme.plan import Plan, plan
from flashrt.scheme.structures import DENSE, FUSION
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason, Refusal

FFN_VARIANT = {"norm": "host", "activation": "silu", "residual": "host", "modulation": "none"}


def seam(
    name: str, structure: str, variant: Mapping[str, str], *points: str, **members: str
) -> Seam:
    where = {point: Point(f"{name}.{point}", "input") for point in points}
    return Seam(name, structure, members or {"self": name}, variant, {}, {"weight": name}, where)


FFN = seam("layers.0.mlp", "decoder_ffn@1", FFN_VARIANT, "x_after_norm", "act_after_mul")
PROJECTIONS = tuple(
    seam(f"layers.0.attn.{r}", "linear_proj@1", {"bias": "none", "epilogue": "none"}, "x")
    for r in ("q", "k", "v", "o")
)
HEAD = replace(PROJECTIONS[0], id="head", members={"self": "head"})
PACK = seam("layers.0.attn.qkv", "qkv_pack@1", {"bias": "none"}, "x",
            **{r: f"layers.0.attn.{r}" for r in ("q", "k", "v")})  # fmt: skip
PATCH = seam("patch", "patch_projection@1", {"bias": "present"})
VISION = seam("tower.mlp", "vision_ffn@1", {"norm": "host"}, "x_after_norm", "act_after_gelu")
ATTENTION = seam("layers.0.attn", "attention_core@1", {"mask": "causal"})
BLOCK = seam("layers.0", "decoder_block@1", {"norm": "rms_direct"})
SEAMS = (FFN, *PROJECTIONS, HEAD, PACK, PATCH, VISION, ATTENTION, BLOCK)


@dataclass(frozen=True)
class Facts:
    """A calibration with one amax for every point."""

    amax: float = 2.0
    odd: Mapping[tuple[str, str], PointRecord] | None = None
    limit: float = 40.0
    digest: str = "sha256:" + "a" * 64

    def of(self, at: Seam) -> dict[str, PointRecord]:
        return {
            n: (self.odd or {}).get((at.id, n)) or record(at.id, n, self.amax) for n in at.points
        }


def record(
    at: str, point: str, amax: float | None, verdict: Verdict = Verdict.CALIBRATED
) -> PointRecord:
    values = (amax, amax, amax, 1.0)
    return PointRecord(Address(at, point, at, "input"), 4, amax, *values, verdict, None)


def bound(made: Plan) -> set[str]:
    return {one.seam.id for one in made.bound}


def kept(made: Plan, name: str) -> Any:
    decision = next(one.decision for one in made.seams if one.seam.id == name)
    assert isinstance(decision, KeepHost), name
    return decision.because


ALL = {one.id for one in PROJECTIONS}
SHARED = {PACK.id, PATCH.id}


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("none", SHARED),
        ("auto", SHARED),
        ("bf16_structural", SHARED),
        ("fp16_weight", {FFN.id, HEAD.id, PATCH.id, *ALL}),
        ("w8a16_decode", {FFN.id, PATCH.id, *ALL}),
        ("w4a16_decode", {FFN.id, *SHARED}),
        ("int8_static", {FFN.id, PATCH.id, *ALL}),
        ("int8_static_keep_outliers", {FFN.id, PATCH.id, *ALL}),
        ("fp8_static", {FFN.id, PATCH.id, *ALL}),
        ("fp8_static_keep_outliers", {FFN.id, PATCH.id, *ALL}),
    ],
)
def test_what_each_profile_takes_of_a_host_with_everything(scheme: str, expected: set[str]) -> None:
    made = plan(scheme, SEAMS, Facts())
    assert bound(made) == expected
    assert {one.seam.id for one in made.seams} == {one.id for one in SEAMS}
    for one in made.seams:
        assert isinstance(one.decision, Bind) or one.decision.because.detail


def test_the_names_are_these() -> None:
    assert registry.names() == (
        *("none", "bf16_structural", "fp16_weight", "w8a16_decode", "w4a16_decode"),
        *("int8_static", "int8_static_keep_outliers", "fp8_static", "fp8_static_keep_outliers"),
    )
    assert all(callable(registry.get(name).decide) for name in registry.names())


@pytest.mark.parametrize("name", registry.names())
def test_a_scheme_is_two_methods_and_nothing_else(name: str) -> None:
    scheme = registry.get(name)
    public = {n for n, v in inspect.getmembers(scheme, callable) if not n.startswith("_")}
    assert public == {"statistics", "decide"}


@pytest.mark.parametrize("name", registry.names())
def test_a_decision_is_values_or_the_host_and_no_bytes(name: str) -> None:
    for one in SEAMS:
        decision = registry.get(name).decide(one, Facts().of(one), Site(1, limit=40.0))
        scales = decision.scales if isinstance(decision, Bind) else {}
        assert set(scales) <= set(one.points)
        assert all(type(scale) is float for scale in scales.values())


def test_structures_without_an_impl_keep_the_host_and_ask_for_no_calibration() -> None:
    odd = (VISION, ATTENTION, BLOCK)
    for scheme in registry.names():
        made = plan(scheme, odd)
        assert bound(made) == set()
        assert made.calibration is None
    because = kept(plan("fp8_static", odd), VISION.id)
    assert (because.reason, because.subject) == (Reason.STRUCTURE, VISION.id)
    assert because in plan("fp8_static", odd).refused
    assert kept(plan("none", odd), ATTENTION.id).reason is Reason.STRUCTURE
    with pytest.raises(Refusal) as caught:
        plan("fp8_static", (*odd, FFN))
    assert (caught.value.reason, caught.value.subject) == (Reason.UNCALIBRATED, FFN.id)


class Proud:
    """A scheme that wants the dense seams and would break if it were asked about a fusion."""

    def statistics(self, at: Seam) -> Mapping[str, Statistic | None]:
        assert at.structure in DENSE or at is BLOCK
        return dict.fromkeys(at.points)

    def decide(self, at: Seam, reduced: Mapping[str, PointRecord], site: Site) -> Decision:
        assert at.structure not in FUSION
        return Bind() if at is FFN else KeepHost.of(at, "not wanted")


def test_fusions_never_consult_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("flashrt.scheme.plan")
    monkeypatch.setattr(module, "get", lambda name: Proud())
    made = plan("fp16_weight", SEAMS)
    assert bound(made) == {FFN.id, *SHARED}


def test_a_fusion_is_not_left_alone_under_the_name_of_a_scheme_that_binds_nothing() -> None:
    assert bound(plan("w8a16_decode", SEAMS, rows=17)) == set()
    assert bound(plan("none", SEAMS, rows=17)) == SHARED


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("scheme", ["none", "bf16_structural"])
def test_fusions_bind_in_the_hosts_own_dtype(scheme: str, dtype: str) -> None:
    made = plan(scheme, SEAMS, dtype=dtype)
    short = {"float32": "fp32", "bfloat16": "bf16"}[dtype]
    assert {one.impl["backend"] for one in made.bound if one.impl} == {f"cpu_{short}"}
    assert bound(made) == SHARED
    assert kept(made, FFN.id).detail == "the scheme quantises nothing"


def test_a_dtype_that_no_form_takes_keeps_the_host() -> None:
    made = plan("fp16_weight", (FFN,), dtype="bfloat16")
    assert kept(made, FFN.id).reason is Reason.DTYPE
    mixed = plan("none", SEAMS, dtype=lambda at: "bfloat16" if at is PATCH else "float32")
    backends = {one.seam.id: one.impl["backend"] for one in mixed.bound if one.impl}
    assert backends == {PATCH.id: "cpu_bf16", PACK.id: "cpu_fp32"}


@pytest.mark.parametrize("kind", ["int8_static", "fp8_static"])
def test_keep_outliers_is_the_ceiling_of_twenty_medians(kind: str) -> None:
    above = {(FFN.id, "act_after_mul"): record(FFN.id, "act_after_mul", 40.01, Verdict.OUTLIER)}
    facts = Facts(odd=above)
    assert FFN.id in bound(plan(kind, SEAMS, facts))
    made = plan(f"{kind}_keep_outliers", SEAMS, facts)
    assert kept(made, FFN.id).reason is Reason.OUTLIER
    assert bound(made) >= ALL
    at_limit = {(FFN.id, "act_after_mul"): record(FFN.id, "act_after_mul", 40.0)}
    assert FFN.id in bound(plan(f"{kind}_keep_outliers", SEAMS, Facts(odd=at_limit)))


def test_four_bits_are_for_decoder_ffn_only_and_decode_only() -> None:
    made = plan("w4a16_decode", SEAMS)
    assert all("four-bit" in kept(made, one.id).detail for one in PROJECTIONS)
    impl = next(one.impl for one in made.bound if one.seam is FFN)
    assert impl == {"structure": "decoder_ffn@1", "backend": "cpu_w4a16", "form": "decode"}
    assert kept(plan("w4a16_decode", SEAMS, rows=17), FFN.id).reason is Reason.SHAPE


@pytest.mark.parametrize("amax", [None, 0.0, -1.0, float("nan"), float("inf"), 1e-44])
def test_nothing_makes_a_scale_of_a_value_that_is_none(amax: float | None) -> None:
    odd = {(FFN.id, "x_after_norm"): record(FFN.id, "x_after_norm", amax, Verdict.UNCALIBRATED)}
    for scheme in ("int8_static", "fp8_static", "fp8_static_keep_outliers"):
        made = plan(scheme, SEAMS, Facts(odd=odd))
        assert FFN.id not in bound(made)
        assert made.seams[0].record()["scales"] == {}


def test_none_is_a_legal_statistic_and_needs_no_calibration() -> None:
    for name in ("none", "bf16_structural", "fp16_weight", "w8a16_decode", "w4a16_decode"):
        assert all(not any(registry.get(name).statistics(s).values()) for s in SEAMS)
        assert plan(name, SEAMS).calibration is None
    assert set(registry.get("fp8_static").statistics(FFN).values()) == {AMAX}
    assert not any(registry.get("fp8_static").statistics(BLOCK).values())


class Given:
    """A scheme that gives exactly these scales."""

    def __init__(self, scales: Mapping[str, Any]) -> None:
        self.scales = scales

    def statistics(self, at: Seam) -> Mapping[str, Statistic | None]:
        return dict.fromkeys(at.points)

    def decide(self, at: Seam, reduced: Mapping[str, PointRecord], site: Site) -> Decision:
        return Bind(self.scales)


@pytest.mark.parametrize(
    ("scheme", "scales", "said"),
    [
        ("int8_static", {}, "takes a static scale at"),
        ("int8_static", {"x_after_norm": 0.1}, "takes a static scale at act_after_mul"),
        ("w8a16_decode", {"x_after_norm": 0.1}, "takes no scale at"),
        ("int8_static", {"x_after_norm": (0.1, 0.2), "act_after_mul": 0.1}, "gives several"),
    ],
)
def test_a_form_is_not_given_other_scales_than_it_takes(
    scheme: str, scales: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("flashrt.scheme.plan")
    monkeypatch.setattr(module, "get", lambda name: Given(scales))
    because = kept(plan(scheme, (FFN,)), FFN.id)
    assert because.reason is Reason.FORM
    assert said in because.detail


def test_auto_is_one_function_and_no_table_of_devices() -> None:
    assert registry.resolve("auto", "cpu") == "none"
    assert [registry.resolve("auto", d) for d in ("sm80", "sm86", "gfx942", "mps")] == ["none"] * 4
    assert {registry.resolve("auto", d) for d in ("sm89", "sm90", "sm100", "sm120")} == {
        "fp8_static"
    }


def test_the_calibration_axis_is_fixed() -> None:
    shared = {"observations", "percentile", "max_samples", "verbose"}
    for door in (structures.auto_swaps, structures.attach):
        words = set(inspect.signature(door).parameters)
        assert shared | {"scheme"} <= words
        assert not words & {"content", "captures", "statistics", "observers", "calibration"}
    assert inspect.signature(structures.auto_swaps).parameters["scheme"].default == "auto"
    assert inspect.signature(structures.auto_swaps).parameters["percentile"].default == 99.9
