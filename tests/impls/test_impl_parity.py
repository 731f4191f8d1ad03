"""Every CPU form against the catalog's reference, and what its arithmetic must survive."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from flashrt_runtime.impls.shared import fp8, fp16, int8, onednn
from flashrt_runtime.impls.shared.processor import Processor
from flashrt_runtime.impls.shared.rows import rows_product
from torch.fx.experimental.proxy_tensor import make_fx

from flashrt.spec import load
from flashrt.spec.harness import Case, Slots, compare, draw
from flashrt.spec.reference import load_reference
from flashrt_runtime import impl_loader as loader

FORMS = [
    loader.ImplForm(manifest, form)
    for manifest in loader.manifests()
    if manifest.device == "cpu"
    for form in manifest.forms
]
FLOOR = {
    "cpu_fp16": 0.999999,
    "cpu_w8a16": 0.9999,
    "cpu_w4a16": 0.97,
    "cpu_bf16": 0.9999,
    "cpu_int8": 0.999,
    "cpu_fp8": 0.995,
    "int8_packed": 0.999,
    "fp8_packed": 0.995,
    "nvfp4_dynamic": 0.98,
}
RELATIVE = {"cpu_w4a16": 0.5}  # three matrices of four bits, one after another
by_form = pytest.mark.parametrize("impl", FORMS, ids=str)


def case_for(impl: loader.ImplForm, rows: int, seed: int = 0, slots: Slots = Slots.ALL) -> Case:
    spec = load(impl.structure)
    sizes = {spec.rows: (rows,)}
    dtype = getattr(torch, impl.spec.input_dtype[0])
    return next(
        draw(spec, 1, seed, variants=impl.spec.variants, sizes=sizes, slots=slots, dtype=dtype)
    )


@by_form
@pytest.mark.parametrize("rows", [1, 3, 16, 40])
@pytest.mark.parametrize("slots", [Slots.ALL, Slots.NONE])
def test_agrees_with_the_reference(
    impl: loader.ImplForm, rows: int, slots: Slots, bind_case: Any, call_seam: Any
) -> None:
    for seed in range(3):
        case = case_for(impl, rows, seed, slots)
        seam = bind_case(impl, case)
        reference = load_reference(case.spec)
        for found in compare(reference, lambda i, w, v, s=seam: call_seam(s, i["x"]), case):
            floor = FLOOR.get(impl.backend, 0.9999999)
            most = RELATIVE.get(impl.backend, 0.2)
            assert found.within(floor, relative=most), (impl, case.variant, found)


@by_form
def test_names_its_operator_and_its_bytes(impl: loader.ImplForm, bind_case: Any) -> None:
    case = case_for(impl, 1, slots=Slots.NONE)
    seam = bind_case(impl, case)
    plain = sum(t.numel() * t.element_size() for t in case.weights.values())
    assert seam.operator == impl.manifest.operator
    assert 0 < seam.weight_bytes <= plain
    assert all(isinstance(v, str) for v in seam.notes.values())


@by_form
def test_the_host_keeps_its_tensors_and_its_state_dict(
    impl: loader.ImplForm, bind_case: Any, call_seam: Any
) -> None:
    case = case_for(impl, 2)
    before = {n: t.clone() for n, t in case.weights.items()}
    seam = bind_case(impl, case)
    first = call_seam(seam, case.inputs["x"])
    for tensor in case.weights.values():
        tensor.zero_()
    again = call_seam(seam, case.inputs["x"])
    for name, value in first.items():
        assert torch.equal(value, again[name]), "the packed weights alias the host's"
    for tensor, kept in zip(case.weights.values(), before.values(), strict=True):
        tensor.copy_(kept)
    assert all(not body.state_dict() for body in seam.bodies.values())


@by_form
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
def test_a_nonfinite_row_is_seen_and_stays_in_its_row(
    impl: loader.ImplForm, poison: float, bind_case: Any, call_seam: Any
) -> None:
    case = case_for(impl, 3)
    seam = bind_case(impl, case)
    x = case.inputs["x"].clone().reshape(3, -1)
    x[1, 0] = poison
    for value in call_seam(seam, x).values():
        assert not bool(torch.isfinite(value[1]).any())
        assert bool(torch.isfinite(value[[0, 2]]).all())


@by_form
def test_a_channel_of_zeros_stays_zero(
    impl: loader.ImplForm, bind_case: Any, call_seam: Any
) -> None:
    case = case_for(impl, 2, slots=Slots.NONE)
    slot = {"decoder_ffn": "down", "qkv_pack": "k"}.get(case.spec.name, "weight")
    # an offset norm multiplies by 1 + weight
    case.weights[slot][0] = -1.0 if case.variant.get("norm") == "rms_offset" else 0.0
    expected = load_reference(case.spec).run(case.inputs, case.weights, case.variant)
    got = call_seam(bind_case(impl, case), case.inputs["x"])
    output = "k" if case.spec.name == "qkv_pack" else "y"
    assert bool(torch.isfinite(got[output]).all())
    gap = (got[output][..., 0] - expected[output][..., 0]).abs()
    assert float(gap.max()) == 0.0


@pytest.mark.parametrize("how", ["rows", "int_mm", "reduced", "widen"])
def test_int8_never_saturates(how: str) -> None:
    largest = int8.REDUCED if how == "reduced" else int8.WHOLE
    weight = torch.full((32, 1040), float(largest))
    weight[::2] *= -1
    x = torch.full((3, 1040), 127.0)
    x[1] *= -1
    packed = int8.pack_static(weight, how, 1.0)
    exact = (x.double() @ weight.double().t()).float()
    assert torch.equal(int8.product_static(x, packed, how), exact)


SATURATION = """
import torch
from flashrt_runtime.impls.shared import int8, onednn
worst = {}
for largest in (int8.REDUCED, int8.WHOLE):
    levels = torch.full((32, 576), largest, dtype=torch.int8)
    sums = onednn.product(torch.full((4, 576), 127.0), onednn.pack(levels), 32)
    worst[largest] = float((sums - 576 * 127.0 * largest).abs().max())
print(worst[int8.REDUCED], worst[int8.WHOLE])
"""


def test_reduced_weights_are_exact_on_a_processor_without_vnni() -> None:
    if not onednn.runs():
        assert int8.kernel("general", Processor(vnni=False, wide=False)) == "widen"
        return
    done = subprocess.run(
        [sys.executable, "-c", SATURATION],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        check=True,
    )
    reduced, whole = map(float, done.stdout.split())
    assert reduced == 0.0
    assert whole >= 0.0


@pytest.mark.parametrize(
    ("vnni", "form", "allowed", "note"),
    [
        (True, "decode", {"rows"}, "false"),
        (False, "decode", {"rows"}, "false"),
        (True, "general", {"int_mm"}, "false"),
        (False, "general", {"reduced", "widen"}, None),
    ],
)
def test_range_reduction_follows_the_flags(
    vnni: bool, form: str, allowed: set[str], note: str | None
) -> None:
    how = int8.kernel(form, Processor(vnni=vnni, wide=vnni))
    assert how in allowed
    assert int8.reduces(how) == (note or ("true" if how == "reduced" else "false"))


def test_a_value_beyond_the_calibrated_range_is_clamped_to_it() -> None:
    weight = torch.eye(32)
    x = torch.full((1, 32), 1000.0)
    for pack, product, top in (
        (lambda w: int8.pack_static(w, "rows", 1.0), int8.product_static, 127.0),
        (lambda w: fp8.pack(w, 1.0), fp8.product, 448.0),
    ):
        assert torch.allclose(product(x, pack(weight), "rows"), torch.full((1, 32), top))


@pytest.mark.parametrize("how", ["rows", "fbgemm", "widen"])
def test_fp16_products_agree(how: str) -> None:
    if how == "fbgemm" and not fp16._fbgemm_runs():
        assert fp16.kernel("general", Processor(vnni=False, wide=False)) == "widen"
        return
    weight, x = torch.randn(48, 64), torch.randn(5, 64)
    packed = fp16.pack(weight, how, request=_no_request())
    expected = F.linear(x, weight.half().float())
    assert torch.allclose(fp16.product(x, packed, how), expected, rtol=1e-3, atol=1e-3)


def _no_request() -> Any:
    from flashrt_runtime.contract import BindRequest, Seam

    return BindRequest(Seam("s", "linear_proj@1", {"self": "a"}, {}, {}, {}), {}, {}, "general")


@pytest.mark.parametrize("wide", [True, False])
def test_fp16_prefers_fbgemm_on_narrow_vectors_only(wide: bool) -> None:
    how = fp16.kernel("general", Processor(vnni=wide, wide=wide))
    assert how == ("widen" if wide or not fp16._fbgemm_runs() else "fbgemm")
    assert fp16.kernel("decode", Processor(vnni=wide, wide=wide)) == "rows"


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 6, 7, 16])
@pytest.mark.parametrize("dtype", [torch.float16, torch.int8, torch.float8_e4m3fn])
def test_rows_product_for_any_number_of_rows(rows: int, dtype: torch.dtype) -> None:
    weight = torch.randint(-5, 6, (24, 40)).to(dtype)
    x = torch.randint(-9, 10, (rows, 40)).float()
    traced = make_fx(rows_product, tracing_mode="fake")
    expected = F.linear(x, weight.float())
    assert torch.equal(rows_product(x, weight), expected)
    graph = traced(x, weight)
    assert torch.equal(graph(x, weight), expected)
    assert not [n for n in graph.graph.nodes if "mm" in str(n.target)]
