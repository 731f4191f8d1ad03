"""Scales that a person states: what is refused, where, and what becomes of the others."""

from pathlib import Path

import pytest

from flashrt.calibration.kinds import Address
from flashrt.calibration.reduce import PointRecord, Verdict
from flashrt.document.problem import InputError
from flashrt.document.schema import require
from flashrt.scheme import Overrides
from flashrt.scheme.plan import plan
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason, Refusal

VARIANT = {"bias": "none", "epilogue": "none"}
ZERO = "sha256:" + "0" * 64


def projection(name: str) -> Seam:
    weights = {"weight": f"{name}.weight"}
    points = {"x": Point(name, "input")}
    return Seam(name, "linear_proj@1", {"self": name}, VARIANT, {}, weights, points)


SEAMS = (projection("a.q"), projection("a.k"), projection("b.o"))


class Facts:
    """Every point has amax 1.27."""

    digest, limit = ZERO, 100.0

    def of(self, seam: Seam) -> dict[str, PointRecord]:
        values = (1.27, 1.27, 1.27, 1.0)
        address = Address(seam.id, "x", seam.id, "input")
        return {"x": PointRecord(address, 4, 1.27, *values, Verdict.CALIBRATED, None)}


def write(folder: Path, value: str, seam: str = "a.q", point: str = "x") -> Path:
    path = folder / "overrides.yaml"
    path.write_text(
        f"schema: flashrt.scale_overrides/1\nseams:\n  {seam}:\n    # mine\n    {point}: {value}\n"
    )
    return path


@pytest.mark.parametrize(
    "value", ["0", "0.0", "-0.0", "-1", "-1.5", ".nan", ".inf", "-.inf", "nan", "inf", "true",
              "null", "'1'", "[1.0]", "{}", "0.00000000000000000000000000000000000000000001"]
)  # fmt: skip
def test_what_is_no_scale_is_refused_by_file_line_and_path(tmp_path: Path, value: str) -> None:
    path = write(tmp_path, value)
    with pytest.raises(InputError) as caught:
        Overrides.read(path)
    (problem,) = caught.value.problems
    assert problem.file == str(path)
    assert problem.line == 5
    assert problem.path.startswith('$.seams["a.q"].x') or problem.path.endswith(".x")


@pytest.mark.parametrize(
    "text", ["{}", "seams: {}", "schema: flashrt.scale_overrides/1\nseams: {}"]
)
def test_what_is_no_overrides_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "o.yaml"
    path.write_text(text)
    with pytest.raises(InputError):
        Overrides.read(path)


def test_an_override_replaces_one_scale_and_the_plan_says_so(tmp_path: Path) -> None:
    given = Overrides.read(write(tmp_path, "0.5"))
    made = plan("int8_static", SEAMS, Facts(), overrides=given)
    scales = {one.seam.id: one.record() for one in made.bound}
    assert scales["a.q"]["scales"] == {"x": 0.5}
    assert scales["a.q"]["overridden"] == ["x"]
    assert scales["a.k"]["scales"] == {"x": 1.27 / 127.0}
    assert "overridden" not in scales["a.k"]
    assert made.overrides == given.digest
    artifact = {"name": "t", "family": "t", "checkpoint_digest": ZERO, "dtype": "float32",
                "tokenizer_digest": None, "parameters": 1, "provenance": "a test"}  # fmt: skip
    words = {"model_artifact": artifact, "binding": {"name": "t", "digest": ZERO}}
    require(made.record(**words, binding_manifest={}), "plan")
    plain = plan("int8_static", SEAMS, Facts()).record(**words, binding_manifest={})
    assert "overrides" not in plain


@pytest.mark.parametrize(
    ("seam", "point", "scheme", "reason"),
    [
        ("a.v", "x", "int8_static", Reason.BINDING),
        ("a.q", "y", "int8_static", Reason.BINDING),
        ("a.q", "x", "w8a16_decode", Reason.CONFLICT),
        ("a.q", "x", "none", Reason.CONFLICT),
    ],
)
def test_an_override_that_nothing_uses_is_refused(
    tmp_path: Path, seam: str, point: str, scheme: str, reason: Reason
) -> None:
    given = Overrides.read(write(tmp_path, "0.5", seam, point))
    with pytest.raises(Refusal) as caught:
        plan(scheme, SEAMS, Facts(), overrides=given)
    assert caught.value.reason is reason
    assert seam in str(caught.value)


def test_an_override_does_not_make_a_scale_where_nothing_was_seen(tmp_path: Path) -> None:
    class Unseen(Facts):
        def of(self, seam: Seam) -> dict[str, PointRecord]:
            address = Address(seam.id, "x", seam.id, "input")
            nothing = (None, None, None, None, None)
            return {"x": PointRecord(address, 0, *nothing, Verdict.UNCALIBRATED, None)}

    given = Overrides.read(write(tmp_path, "0.5"))
    with pytest.raises(Refusal, match="saw no value") as caught:
        plan("int8_static", SEAMS, Unseen(), overrides=given)
    assert caught.value.reason is Reason.CONFLICT
