"""ModelPrecisionSpec: round-trips to the byte, carries identity, takes no number that is none."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import flashrt as structures
from flashrt.calibration.precision import GRANULARITIES, PLAIN
from flashrt.calibration.precision_spec import (
    DataIdentity,
    ModelPrecisionSpec,
    PointPrecision,
    SeamPrecision,
    Source,
    WeightPrecision,
)
from flashrt.calibration.reduce import effective_percentile
from flashrt.calibration.statistic import AMAX, Granularity, Kind, Statistic
from flashrt.document.canonical import canonical_bytes, parse_json, seal
from flashrt.document.problem import InputError
from flashrt_runtime.reason import Because, Reason, Refusal

DIGEST = "sha256:" + "1" * 64
ARTIFACT = {"name": "t", "family": "t", "checkpoint_digest": DIGEST, "architecture_digest": DIGEST,
            "dtype": "float32", "tokenizer_digest": None, "parameters": 7,
            "provenance": "a test"}  # fmt: skip
PACKED = ("int8", "int4", "fp8_e4m3", "nvfp4")
CHANNEL = Statistic(Kind.AMAX, Granularity.CHANNEL)
BLOCK = Statistic(Kind.SECOND_MOMENT, Granularity.BLOCK_16)
NAMES = st.text("abcdefgh_.0", min_size=1, max_size=12)
SCALES = st.floats(1.2e-38, 3.4e38, allow_subnormal=False)


def points() -> st.SearchStrategy[PointPrecision]:
    fixed = st.sampled_from((Source.CALIBRATED, Source.OVERRIDE))
    several = st.lists(SCALES, min_size=1, max_size=5).map(tuple)
    return st.one_of(
        st.builds(PointPrecision, st.just(AMAX), SCALES, fixed),
        st.builds(PointPrecision, st.sampled_from((CHANNEL, BLOCK)), several, fixed),
        st.builds(
            PointPrecision,
            st.none(),
            st.none(),
            st.sampled_from((Source.DYNAMIC, Source.UNQUANTISED)),
        ),
    )


def seams() -> st.SearchStrategy[SeamPrecision]:
    packed = st.builds(WeightPrecision, st.sampled_from(PACKED), st.sampled_from(GRANULARITIES))
    weights = st.dictionaries(NAMES, packed | st.builds(WeightPrecision, st.sampled_from(PLAIN)))
    binds = st.builds(
        SeamPrecision,
        st.just("linear_proj@1"),
        st.just(("cpu_int8", "decode")),
        st.none(),
        st.dictionaries(NAMES, points(), max_size=3),
        weights,
    )
    because = Because(Reason.OUTLIER, "too far", "a.b")
    return binds | st.just(SeamPrecision("decoder_ffn@1", None, because))


@st.composite
def data(draw: st.DrawFn) -> DataIdentity:
    samples, asked = draw(st.integers(1, 9999)), draw(st.floats(0.1, 100.0))
    digest = draw(st.none() | st.just(DIGEST))
    return DataIdentity("brown", digest, samples, asked, effective_percentile(asked, samples))


@st.composite
def specs(draw: st.DrawFn) -> ModelPrecisionSpec:
    """Any that does not contradict itself."""
    made = draw(st.dictionaries(NAMES, seams(), max_size=4))
    sources = {point.source for seam in made.values() for point in seam.points.values()}
    maybe = st.none() | st.just(DIGEST)
    calibration = draw(maybe)
    measured = data() if calibration is None else st.none() | data()
    return ModelPrecisionSpec(
        scheme="int8_static",
        model_artifact=ARTIFACT,
        binding=draw(st.none() | st.just({"name": "t", "digest": DIGEST})),
        structures=tuple(
            {"name": name, "version": 1, "spec_digest": DIGEST}
            for name in ("decoder_ffn", "linear_proj")
        ),
        calibration=calibration,
        overrides=DIGEST if Source.OVERRIDE in sources else draw(maybe),
        workload=draw(measured) if Source.CALIBRATED in sources else None,
        seams=made,
        software={"torch": "2"},
    )


@settings(max_examples=60, deadline=None)
@given(specs())
def test_it_round_trips_to_the_byte(spec: ModelPrecisionSpec) -> None:
    data = spec.to_bytes()
    again = ModelPrecisionSpec.from_record(parse_json(data, "spec"))
    assert again == spec
    assert again.to_bytes() == data
    assert again.digest == spec.digest == json.loads(data)["digest"]


@pytest.fixture
def spec() -> ModelPrecisionSpec:
    point = PointPrecision(AMAX, 0.25, Source.CALIBRATED)
    channels = PointPrecision(CHANNEL, (0.5, 0.75), Source.OVERRIDE)
    weights = {"weight": WeightPrecision("int8", "channel"), "bias": WeightPrecision("float32")}
    seam = SeamPrecision(
        "linear_proj@1", ("cpu_int8", "decode"), None, {"x": point, "y": channels}, weights
    )
    data = DataIdentity("brown", DIGEST, 8, 99.9, 100.0)
    structure = {"name": "linear_proj", "version": 1, "spec_digest": DIGEST}
    return ModelPrecisionSpec(
        "int8_static", ARTIFACT, None, (structure,), DIGEST, DIGEST, data, {"a.q": seam}, {}
    )


@pytest.mark.parametrize("value", [0, 0.0, -1, math.nan, math.inf, -math.inf, 1e-45, None, "1", []])
@pytest.mark.parametrize("where", ["tensor", "channel"])
def test_a_scale_that_is_none_is_refused_by_schema(
    spec: ModelPrecisionSpec, value: Any, where: str
) -> None:
    body = copy.deepcopy(spec.record())
    held = body["seams"]["a.q"]["points"]
    if where == "tensor":
        held["x"]["scale"] = value
    else:
        held["y"]["scale"][1] = value
    with pytest.raises(InputError) as caught:
        ModelPrecisionSpec.from_record(body)
    assert caught.value.reason is Reason.SCHEMA


@pytest.mark.parametrize("value", ["0", "-1", "NaN", "Infinity"])
def test_a_file_with_such_a_scale_is_refused_with_line_and_path(
    spec: ModelPrecisionSpec, tmp_path: Path, value: str
) -> None:
    path = tmp_path / "spec.json"
    lines = json.dumps(spec.record(), indent=1, sort_keys=True).replace("0.25", value)
    path.write_text(lines)
    line = 1 + next(i for i, text in enumerate(lines.split("\n")) if f'"scale": {value}' in text)
    with pytest.raises(InputError) as caught:
        ModelPrecisionSpec.load(path)
    problem = caught.value.problems[0]
    assert problem.file == str(path)
    if value[0] in "0-":
        assert problem.line == line
        assert "points.x" in problem.path


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((AMAX, 0.0, Source.CALIBRATED), Reason.DEAD),
        ((AMAX, -1.0, Source.CALIBRATED), Reason.DEAD),
        ((AMAX, math.nan, Source.CALIBRATED), Reason.NONFINITE),
        ((CHANNEL, (1.0, math.inf), Source.CALIBRATED), Reason.NONFINITE),
        ((AMAX, None, Source.CALIBRATED), Reason.CONFLICT),
        ((AMAX, (1.0,), Source.CALIBRATED), Reason.CONFLICT),
        ((CHANNEL, 1.0, Source.CALIBRATED), Reason.CONFLICT),
        ((CHANNEL, (), Source.CALIBRATED), Reason.CONFLICT),
        ((None, 1.0, Source.OVERRIDE), Reason.CONFLICT),
        ((None, 1.0, Source.DYNAMIC), Reason.CONFLICT),
        ((AMAX, 1.0, Source.UNQUANTISED), Reason.CONFLICT),
    ],
)
def test_a_point_says_one_thing(arguments: Any, reason: Reason) -> None:
    with pytest.raises(Refusal) as caught:
        PointPrecision(*arguments)
    assert caught.value.reason is reason


def test_what_was_changed_after_it_was_sealed_is_refused(spec: ModelPrecisionSpec) -> None:
    body = spec.record() | {"scheme": "fp8_static"}
    with pytest.raises(Refusal) as caught:
        ModelPrecisionSpec.from_record(body)
    assert caught.value.reason is Reason.DIGEST
    assert ModelPrecisionSpec.from_record(seal(body)).scheme == "fp8_static"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"model_artifact": {**ARTIFACT, "checkpoint_digest": DIGEST[:-1] + "2"}},
            Reason.CHECKPOINT,
        ),
        ({"model_artifact": {**ARTIFACT, "architecture_digest": None}}, Reason.CHECKPOINT),
        ({"model_artifact": {**ARTIFACT, "dtype": "bfloat16"}}, Reason.DTYPE),
        ({"binding": {"name": "t", "digest": DIGEST}}, Reason.BINDING),
        ({"specs": {"linear_proj@1": DIGEST[:-1] + "2"}}, Reason.STALE_SPEC),
        ({"specs": {}}, Reason.STALE_SPEC),
    ],
)
def test_it_is_for_one_host_binding_and_spec(
    spec: ModelPrecisionSpec, change: dict[str, Any], reason: Reason
) -> None:
    for_it: dict[str, Any] = {
        "model_artifact": ARTIFACT,
        "binding": None,
        "specs": {"linear_proj@1": DIGEST},
    }
    assert spec.require_for(**for_it) is None
    with pytest.raises(Refusal) as caught:
        spec.require_for(**(for_it | change))
    assert caught.value.reason is reason


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(32, 48, bias=False), nn.Linear(32, 48, bias=False)
        self.down = nn.Linear(48, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Routed(nn.Module):
    """Two experts; a row goes to the second when its first value is above a bar."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([Expert(), Expert()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        second = x[:, 0] > 2.0
        out = self.experts[0](x)
        if bool(second.any()):
            out = torch.where(second[:, None], self.experts[1](x), out)
        return out


def test_an_expert_that_saw_no_token_gets_no_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    from flashrt.calibration.collect import collect
    from flashrt.calibration.reduce import reduce
    from flashrt.doors.observe import Observation
    from flashrt.doors.swaps import Measured
    from flashrt.host.discovery import discover
    from flashrt.host.seams import served, spec_digests
    from flashrt.scheme.plan import plan
    from flashrt.scheme.precision import precision_spec

    torch.manual_seed(0)
    model = Routed().eval().requires_grad_(False)
    both, first = torch.full((2, 32), 3.0), torch.randn(2, 32).clamp(max=1.0)
    seams = served(discover(model, lambda: model(torch.randn(2, 32) + both)).seams)
    frames = [Observation(f"f{i}", first * (i + 1) / 4) for i in range(4)]
    samples = collect(model, seams, frames, lambda o: model(o.value))
    measured = Measured(reduce(samples, 99.9))
    for scheme in ("int8_static", "fp8_static", "fp8_static_keep_outliers"):
        made = plan(scheme, seams, measured)
        found = precision_spec(
            made,
            model_artifact=ARTIFACT,
            binding=None,
            specs=spec_digests(seams),
            workload=DataIdentity("rows", None, 4, 99.9, 100.0),
        )
        assert found.seams["experts.0"].scales.keys() == {"x_after_norm", "act_after_mul"}
        second = found.seams["experts.1"]
        assert (second.impl, second.scales) == (None, {})
        assert second.reason is not None
        assert second.reason.reason is Reason.UNCALIBRATED


def test_a_plan_of_the_doors_carries_one() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Expert(), nn.ReLU(), nn.Linear(32, 8)).eval().requires_grad_(False)
    frames = [torch.randn(3, 32) for _ in range(3)]
    made = structures.auto_swaps(model, model, observations=frames, scheme="int8_static")
    spec = made.precision_spec
    assert isinstance(spec, ModelPrecisionSpec)
    assert spec.scheme == "int8_static"
    ffn = spec.bound["0"]
    assert {p.source for p in ffn.points.values()} == {Source.CALIBRATED}
    assert {w.record()["scales"] for w in ffn.weights.values()} == {"bind"}
    assert spec.workload is not None
    assert (spec.workload.samples, spec.workload.asked) == (3, 99.9)
    assert ModelPrecisionSpec.from_record(spec.record()) == spec
    assert canonical_bytes(spec.record()) == spec.to_bytes()
    other = structures.auto_swaps(model, model, observations=frames[:2], scheme="int8_static")
    assert other.precision_spec.workload.digest != spec.workload.digest
    model[2].weight.view(-1)[-1] += 1e-3
    moved = structures.auto_swaps(model, model, observations=frames, scheme="int8_static")
    before = spec.model_artifact["checkpoint_digest"]
    assert moved.precision_spec.model_artifact["checkpoint_digest"] != before
