"""Manifests, selection and bind's own checks, without torch where that is possible."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashrt_runtime import impl_loader as loader
from flashrt_runtime.contract import BindRequest, Seam
from flashrt_runtime.reason import Reason, Refusal

FFN = {"norm": "host", "activation": "silu", "residual": "host", "modulation": "none"}
LINEAR = {"bias": "none", "epilogue": "none"}
PLANS = [
    ("fp16_weight", 1, "cpu_fp16", "decode"),
    ("fp16_weight", 16, "cpu_fp16", "decode"),
    ("fp16_weight", 256, "cpu_fp16", "general"),
    ("w8a16_decode", 1, "cpu_w8a16", "decode"),
    ("w8a16_decode", 16, "cpu_w8a16", "decode"),
    ("int8_static", 1, "cpu_int8", "decode"),
    ("int8_static", 2, "cpu_int8", "general"),
    ("int8_static_keep_outliers", 256, "cpu_int8", "general"),
    ("fp8_static", 1, "cpu_fp8", "decode"),
    ("fp8_static", 256, "cpu_fp8", "general"),
]


@pytest.mark.parametrize(("scheme", "rows", "backend", "form"), PLANS)
@pytest.mark.parametrize("structure", ["decoder_ffn@1", "linear_proj@1"])
def test_one_form_serves_each_call(
    structure: str, scheme: str, rows: int, backend: str, form: str
) -> None:
    variant = FFN if structure.startswith("decoder") else LINEAR
    chosen = loader.select(structure, scheme, "cpu", rows, variant)
    assert (chosen.backend, chosen.form) == (backend, form)
    assert loader.find(chosen.record()) == chosen


def test_none_binds_the_packed_projections() -> None:
    chosen = loader.select("qkv_pack@1", "none", "cpu", 256, {"bias": "present"}, dtype="float32")
    assert chosen.record() == {"structure": "qkv_pack@1", "backend": "cpu_fp32", "form": "general"}


def test_rows_outside_the_band_name_the_form_and_the_size() -> None:
    with pytest.raises(
        Refusal, match=r"form decode serves 1 to 16 rows; the call has 256"
    ) as caught:
        loader.select("decoder_ffn@1", "w8a16_decode", "cpu", 256, FFN)
    assert caught.value.reason is Reason.FORM
    assert "cpu_w8a16" in str(caught.value)


@pytest.mark.parametrize(
    ("axis", "value"),
    [("norm", "rms_direct"), ("residual", "add"), ("modulation", "adaln"), ("activation", "relu")],
)
def test_a_variant_outside_the_form_is_refused_by_name(axis: str, value: str) -> None:
    with pytest.raises(Refusal, match=rf"executes {axis} .*has {value}") as caught:
        loader.select("decoder_ffn@1", "fp16_weight", "cpu", 1, {**FFN, axis: value})
    assert caught.value.reason is Reason.FORM


def test_an_axis_that_no_manifest_lists_is_refused() -> None:
    with pytest.raises(Refusal, match="does not execute the axis sideways"):
        loader.select("linear_proj@1", "fp16_weight", "cpu", 1, {**LINEAR, "sideways": "yes"})


@pytest.mark.parametrize(
    ("structure", "scheme", "device", "reason"),
    [
        ("no_such@1", "none", "cpu", Reason.STRUCTURE),
        ("decoder_ffn@2", "fp16_weight", "cpu", Reason.STRUCTURE),
        ("linear_proj@1", "w4a16_decode", "cpu", Reason.FORM),
        ("qkv_pack@1", "none", "sm90", Reason.ARCH),
        ("decoder_ffn@1", "fp8_static", "sm80", Reason.ARCH),
        ("decoder_ffn@1", "fp8_static", "toaster", Reason.ARCH),
    ],
)
def test_nothing_fits(structure: str, scheme: str, device: str, reason: Reason) -> None:
    with pytest.raises(Refusal) as caught:
        loader.select(structure, scheme, device, 1)
    assert caught.value.reason is reason


@pytest.mark.parametrize("device", ["sm89", "sm90", "sm100", "sm103", "sm120"])
def test_triton_is_chosen_on_devices_with_e4m3(device: str) -> None:
    normed = {**FFN, "norm": "rms_offset", "eps": "1e-06"}
    chosen = loader.select("decoder_ffn@1", "fp8_static", device, 1, normed)
    assert (chosen.backend, chosen.form) == ("triton_fp8", "decode")


def test_two_that_fit_are_ambiguous() -> None:
    first = next(m for m in loader.manifests() if m.backend == "cpu_w8a16")
    twin = replace(first, backend="cpu_other")
    with pytest.raises(Refusal, match="cpu_other") as caught:
        loader.select(first.structure, "w8a16_decode", "cpu", 1, known=[first, twin])
    assert caught.value.reason is Reason.AMBIGUOUS


def test_bands_are_said_in_words() -> None:
    form = loader.manifests()[0].forms[0]
    bands = ((1, 1), (2, 2), (1, 16), (17, None), (1, None))
    said = [replace(form, rows=band).band() for band in bands]
    assert said == [
        "1 row", "2 rows", "1 to 16 rows", "17 rows and more", "any number of rows",
    ]  # fmt: skip
    assert not replace(form, rows=(2, 4)).serves_rows(1)


@pytest.mark.parametrize(
    "record",
    [
        {"structure": "decoder_ffn@1", "backend": "../../os", "form": "decode"},
        {"structure": "os@1", "backend": "path", "form": "decode"},
        {"structure": "decoder_ffn@1", "backend": "cpu_fp16", "form": "fast"},
        {},
    ],
)
def test_a_record_cannot_name_anything_that_is_not_installed(record: dict[str, str]) -> None:
    before = set(sys.modules)
    with pytest.raises(Refusal, match="no installed impl") as caught:
        loader.find(record)
    assert caught.value.reason is Reason.FORM
    assert set(sys.modules) == before


def _written(tmp_path: Path, folder: str, stem: str, **change: Any) -> Path:
    path = tmp_path / folder / f"{stem}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {
        "structure": "alpha@1",
        "backend": "beta",
        "version": "1",
        "operator": "flashrt::alpha_beta",
        "device": "cpu",
        "archs": [],
        "forms": [],
    }
    path.write_text(json.dumps(body | change))
    return tmp_path


def test_a_manifest_is_read_from_another_root(tmp_path: Path) -> None:
    (found,) = loader.manifests(_written(tmp_path, "alpha", "beta"))
    assert found.id == "alpha@1/beta"


@pytest.mark.parametrize(
    ("folder", "stem", "change"),
    [
        ("alpha", "gamma", {}),
        ("other", "beta", {}),
        ("alpha", "beta", {"structure": "alpha"}),
        ("alpha", "beta", {"backend": "a.b"}),
        ("alpha", "beta", {"forms": [{"name": "x"}]}),
        ("alpha", "beta", {"forms": 3}),
    ],
)
def test_a_manifest_that_lies_is_refused(
    tmp_path: Path, folder: str, stem: str, change: dict[str, Any]
) -> None:
    root = _written(tmp_path, folder, stem, **change)
    with pytest.raises(Refusal, match="manifest cannot be used") as caught:
        loader.manifests(root)
    assert caught.value.reason is Reason.SCHEMA
    assert str(tmp_path) not in str(caught.value)


def test_a_manifest_that_is_not_json(tmp_path: Path) -> None:
    (tmp_path / "alpha").mkdir()
    (tmp_path / "alpha" / "beta.json").write_text("{")
    with pytest.raises(Refusal, match="JSONDecodeError"):
        loader.manifests(tmp_path)


def test_a_backend_whose_name_is_a_path_is_never_imported() -> None:
    found = replace(loader.manifests()[0], backend="cpu_fp16.os")
    with pytest.raises(Refusal, match="not an impl's name"):
        loader._module(found)


def test_an_impl_that_cannot_be_imported_is_refused() -> None:
    found = replace(loader.manifests()[0], backend="cpu_absent")
    with pytest.raises(Refusal, match="cannot be imported"):
        loader._module(found)


def test_reading_manifests_imports_no_torch() -> None:
    code = (
        "import sys; from flashrt_runtime.impl_loader import select;"
        "print(select('linear_proj@1', 'fp16_weight', 'cpu', 1).backend, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cpu_fp16", "False"]


def _request(**change: Any) -> BindRequest:
    import torch

    seam = Seam(
        "linear:a", "linear_proj@1", {"self": "a"}, LINEAR, {"K": 32, "N": 16}, {"weight": "a"}
    )
    weights = change.pop("weights", {"weight": torch.ones(16, 32)})
    return BindRequest(replace(seam, **change), weights, {}, "decode")


def test_bind_checks_the_form_and_the_structure() -> None:
    record = {"structure": "linear_proj@1", "backend": "cpu_fp16", "form": "general"}
    with pytest.raises(Refusal, match="asked to bind linear_proj@1 in form 'decode'") as caught:
        loader.bind(record, _request())
    assert caught.value.reason is Reason.FORM


def test_bind_checks_the_variant() -> None:
    record = {"structure": "linear_proj@1", "backend": "cpu_fp16", "form": "decode"}
    with pytest.raises(Refusal, match="the seam has gelu"):
        loader.bind(record, _request(variant={"bias": "none", "epilogue": "gelu"}))


def test_bind_checks_the_dtype() -> None:
    import torch

    record = {"structure": "linear_proj@1", "backend": "cpu_fp16", "form": "decode"}
    half = {"weight": torch.ones(16, 32, dtype=torch.bfloat16)}
    with pytest.raises(Refusal, match=r"'weight' is bfloat16.*takes float32") as caught:
        loader.bind(record, _request(weights=half))
    assert caught.value.reason is Reason.DTYPE


def test_bind_checks_what_the_impl_returned() -> None:
    record = {"structure": "linear_proj@1", "backend": "cpu_fp16", "form": "decode"}
    with pytest.raises(Refusal, match="the seam has"):
        loader.bind(record, _request(members={"self": "a", "other": "b"}))
