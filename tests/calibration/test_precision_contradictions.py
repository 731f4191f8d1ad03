"""A ModelPrecisionSpec, and each of its parts, says one thing or is refused."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashrt.calibration.precision import STORAGE
from flashrt.calibration.precision_spec import (
    SCHEMES,
    DataIdentity,
    ModelPrecisionSpec,
    PointPrecision,
    SeamPrecision,
    Source,
    WeightPrecision,
)
from flashrt.calibration.statistic import AMAX, Granularity, Kind, Statistic
from flashrt.document.canonical import seal
from flashrt.document.problem import InputError
from flashrt.scheme.registry import names, resolve
from flashrt_runtime.reason import Because, Reason, Refusal

DIGEST = "sha256:" + "1" * 64
ARTIFACT = {"name": "t", "family": "t", "checkpoint_digest": DIGEST, "architecture_digest": DIGEST,
            "dtype": "float32", "tokenizer_digest": None, "parameters": 7,
            "provenance": "a test"}  # fmt: skip
CHANNEL = Statistic(Kind.AMAX, Granularity.CHANNEL)
LINEAR = {"name": "linear_proj", "version": 1, "spec_digest": DIGEST}
BECAUSE = Because(Reason.OUTLIER, "too far", "a.b")
POINT = PointPrecision(AMAX, 0.25, Source.CALIBRATED)


@pytest.fixture
def spec() -> ModelPrecisionSpec:
    """One calibrated point and one that a person stated."""
    points = {"x": POINT, "y": PointPrecision(AMAX, 0.5, Source.OVERRIDE)}
    weights = {"weight": WeightPrecision("int8", "channel"), "bias": WeightPrecision("float32")}
    seam = SeamPrecision("linear_proj@1", ("cpu_int8", "decode"), None, points, weights)
    data = DataIdentity("brown", DIGEST, 8, 99.9, 100.0)
    return ModelPrecisionSpec(
        "int8_static", ARTIFACT, None, (LINEAR,), DIGEST, DIGEST, data, {"a.q": seam}, {}
    )


def conflicts(make: Callable[[], Any], match: str) -> None:
    with pytest.raises(Refusal, match=match) as caught:
        make()
    assert caught.value.reason is Reason.CONFLICT


UNRESOLVED = [
    ({"calibration": None, "workload": None}, "by no calibration and from no data"),
    ({"overrides": None}, "no file of stated scales is named"),
    ({"structures": []}, "linear_proj@1 is not among the structures"),
    ({"structures": [{**LINEAR, "version": 2}]}, "linear_proj@1 is not among the structures"),
    ({"structures": [LINEAR, {**LINEAR, "spec_digest": DIGEST[:-1] + "2"}]}, "there twice"),
]


@pytest.mark.parametrize(("change", "match"), UNRESOLVED)
def test_a_spec_that_contradicts_itself_is_refused_made_read_and_loaded(
    spec: ModelPrecisionSpec, tmp_path: Path, change: dict[str, Any], match: str
) -> None:
    conflicts(lambda: replace(spec, **change), match)
    sealed = seal({**{k: v for k, v in spec.record().items() if k != "digest"}, **change})
    conflicts(lambda: ModelPrecisionSpec.from_record(sealed), match)
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(sealed))
    conflicts(lambda: ModelPrecisionSpec.load(path), match)


def test_one_witness_of_a_calibration_is_enough_and_data_without_one_is_not(
    spec: ModelPrecisionSpec,
) -> None:
    for change in ({"calibration": None}, {"workload": None}):
        kept = replace(spec, **change)
        assert ModelPrecisionSpec.from_record(kept.record()) == kept
    free = SeamPrecision("linear_proj@1", None, BECAUSE)
    conflicts(lambda: replace(spec, seams={"a.q": free}), "no point is calibrated")
    assert replace(spec, seams={"a.q": free}, workload=None).bound == {}


@pytest.mark.parametrize("scheme", ["auto", "nope", "", "INT8_STATIC"])
def test_a_scheme_is_one_that_exists_and_is_resolved(spec: ModelPrecisionSpec, scheme: str) -> None:
    conflicts(lambda: replace(spec, scheme=scheme), "is no resolved scheme")
    body = copy.deepcopy(spec.record()) | {"scheme": scheme}
    with pytest.raises(InputError) as caught:
        ModelPrecisionSpec.from_record(seal(body))
    assert "scheme" in caught.value.problems[0].path


def test_the_closed_lists_are_those_of_the_registry_and_of_the_schemas() -> None:
    root = Path(__file__).parents[2] / "schemas"
    ours = json.loads((root / "precision_spec.schema.json").read_text())
    impls = json.loads((root / "impl_manifest.schema.json").read_text())
    assert SCHEMES == names() == tuple(ours["properties"]["scheme"]["enum"])
    assert {resolve("auto", device) for device in ("cpu", "sm80", "sm90")} <= set(SCHEMES)
    assert tuple(ours["$defs"]["weight"]["properties"]["dtype"]["enum"]) == STORAGE
    assert "int8" in json.dumps(impls)
    for storage in ("int8", "int4", "fp8_e4m3", "nvfp4", "float16"):
        assert storage in STORAGE
        assert f'"{storage}"' in json.dumps(impls)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((AMAX, True, Source.CALIBRATED), "True is no number"),
        ((AMAX, "0.5", Source.CALIBRATED), "'0.5' is no number"),
        ((AMAX, [0.5], Source.CALIBRATED), "is no number"),
        ((AMAX, 1 + 0j, Source.CALIBRATED), "is no number"),
        ((CHANNEL, (0.5, "1"), Source.OVERRIDE), "'1' is no number"),
        ((CHANNEL, (0.5, False), Source.OVERRIDE), "False is no number"),
        ((CHANNEL, [0.5], Source.OVERRIDE), "has .0.5."),
        (("amax", 0.5, Source.CALIBRATED), "'amax' is no statistic"),
        (
            (Statistic(Kind.AMAX, Granularity.BLOCK_32), (0.5,), Source.CALIBRATED),
            "is no statistic",
        ),
        ((AMAX, 0.5, "calibrated"), "'calibrated' is no source"),
    ],
)
def test_a_point_of_another_type_is_refused(arguments: Any, match: str) -> None:
    conflicts(lambda: PointPrecision(*arguments), match)


@pytest.mark.parametrize("value", [10**400, -(10**400)])
def test_a_number_too_large_for_a_float_is_not_finite(value: int) -> None:
    with pytest.raises(Refusal, match="is no scale") as caught:
        PointPrecision(AMAX, value, Source.CALIBRATED)
    assert caught.value.reason is Reason.NONFINITE


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: WeightPrecision("zz"), "stored as 'zz'"),
        (lambda: WeightPrecision("int8", "row"), "'row' is none of"),
        (lambda: WeightPrecision("float32", "channel"), "float32 has a scale per channel"),
        (lambda: SeamPrecision("linear_proj", None, BECAUSE), "no structure: name@version"),
        (lambda: SeamPrecision("linear_proj@1", None, None), "neither impl nor reason"),
        (lambda: SeamPrecision("linear_proj@1", ("a", "b"), BECAUSE), "an impl and a reason"),
        (lambda: SeamPrecision("linear_proj@1", ("a", ""), None), "backend and form"),
        (lambda: SeamPrecision("linear_proj@1", None, BECAUSE, {"x": POINT}), "the host is kept"),
        (lambda: DataIdentity("w", None, 0, 99.9, 100.0), "0 is no number of samples"),
        (lambda: DataIdentity("w", None, True, 99.9, 100.0), "True is no number of samples"),
        (lambda: DataIdentity("w", None, 8, "99.9", 100.0), "is no percentile"),
        (lambda: DataIdentity("w", None, 8, 99.9, 99.9), "is 100.0 in effect, not 99.9"),
        (lambda: DataIdentity("w", None, 5000, 99.9, 100.0), "is 99.9 in effect, not 100.0"),
    ],
)
def test_a_part_that_contradicts_itself_is_refused(make: Callable[[], Any], match: str) -> None:
    conflicts(make, match)


@pytest.mark.parametrize("asked", [0.0, -1.0, 100.5, float("nan")])
def test_a_percentile_is_one(asked: float) -> None:
    with pytest.raises(Refusal, match="is not a percentile") as caught:
        DataIdentity("w", None, 8, asked, 100.0)
    assert caught.value.reason is Reason.PERCENTILE
