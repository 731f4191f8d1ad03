"""NVFP4: the format's own rounding and packing, and a product that never holds a dense matrix."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from flashrt_runtime.impls.shared import eight, nvfp4, pieces
from torch._inductor.utils import run_and_get_code
from torch.utils._python_dispatch import TorchDispatchMode

from flashrt_runtime import impl_loader as loader
from flashrt_runtime.contract import BindRequest, BoundSeam, Seam
from flashrt_runtime.reason import Reason, Refusal

VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
NONE = {"bias": "none", "epilogue": "none"}


def request(weights: dict[str, torch.Tensor], form: str = "dynamic") -> BindRequest:
    variant = NONE | {"bias": "present" if "bias" in weights else "none"}
    return BindRequest(
        Seam("a", "linear_proj@1", {"self": "a"}, variant, {}, {}), weights, {}, form
    )


def record(backend: str, form: str = "dynamic") -> dict[str, str]:
    return {"structure": "linear_proj@1", "backend": backend, "form": form}


def packed(rows: int = 96, width: int = 64) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    codes, scale, whole = nvfp4.pack(torch.randn(rows, width))
    names = ("weight_packed", "weight_scale", "weight_global_scale", "input_global_scale")
    return dict(zip(names, (codes, scale, whole, torch.tensor([700.0])), strict=True))


def bound(rows: int = 96, width: int = 64) -> BoundSeam:
    return loader.bind_packed(record("nvfp4_dynamic"), request(packed(rows, width)))


def test_every_byte_means_its_two_values() -> None:
    every = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    signed = VALUES + tuple(-v for v in VALUES)
    low, high = nvfp4.values(every)
    assert low.tolist() == [signed[b & 15] for b in range(256)]
    assert high.tolist() == [signed[b >> 4] for b in range(256)]


def test_a_value_goes_to_the_nearest_and_a_tie_to_the_even_one() -> None:
    from compressed_tensors.quantization.utils.fp4_utils import cast_to_fp4

    ties = [(a + b) / 2 for a, b in pairwise(VALUES)]
    near = [math.nextafter(t, t + s) for t in ties for s in (-1.0, 1.0)]
    x = torch.cat([torch.tensor([*VALUES, *ties, *near]), torch.linspace(0.0, 6.0, 4001)])
    x = torch.cat([x, -x])
    assert torch.equal(nvfp4.rounded(x), cast_to_fp4(x.clone()))
    assert set(nvfp4.rounded(x).abs().tolist()) == set(VALUES)
    assert nvfp4.rounded(torch.tensor(ties)).tolist() == [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0]


def test_packing_is_the_librarys_to_the_bit() -> None:
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import preset_name_to_scheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    torch.manual_seed(1)
    weight = torch.randn(48, 64) * torch.logspace(-6, 2, 48)[:, None]
    weight[3] = 0.0
    scheme = preset_name_to_scheme("NVFP4", ["Linear"])
    whole = generate_gparam(weight.min(), weight.max())
    blocks = weight.unflatten(-1, (-1, 16))
    args = scheme.weights
    scale, _ = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args, global_scale=whole)
    state = {"weight": weight, "weight_scale": scale, "weight_global_scale": whole}
    theirs = BaseCompressor.get_value_from_registry("nvfp4-pack-quantized").compress(state, scheme)
    codes, ours, top = nvfp4.pack(weight)
    assert torch.equal(top, theirs["weight_global_scale"])
    assert torch.equal(ours.float(), theirs["weight_scale"].float())
    # The library drops the sign of a value that rounds to zero; zero has no sign to us.
    for mine, yours in zip(nvfp4.values(codes), nvfp4.values(theirs["weight_packed"]), strict=True):
        assert torch.equal(mine, yours)


@pytest.mark.parametrize("rows", [1, 4, 7, 16, 40])
def test_the_loop_over_few_rows_means_the_same(rows: int) -> None:
    torch.manual_seed(2)
    given = list(packed().values())
    x = torch.randn(rows, 64)
    expected = F.linear(x, nvfp4.dense(given))
    assert torch.allclose(nvfp4._few(x, given), expected, rtol=1e-4, atol=1e-4)


def test_a_row_does_not_depend_on_its_neighbours_and_zeros_give_zeros() -> None:
    torch.manual_seed(3)
    seam = loader.bind(record("nvfp4_dynamic"), request({"weight": torch.randn(48, 64)}))
    body = seam.bodies["self"]
    assert seam.notes == {"kernel": "row"}
    x = torch.randn(5, 64)
    x[1] = 0.0
    x[2] *= 1e4
    x[3] *= 1e-30
    whole = body(x)
    for i in range(5):
        alone = body(x[i : i + 1])[0]
        assert float((alone - whole[i]).norm()) <= 1e-5 * float(whole[i].norm())
    assert not whole[1].any()
    dense = F.linear(x, body.dense()).double()
    for i in (0, 2, 3, 4):
        assert float((whole[i].double() - dense[i]).norm() / dense[i].norm()) < 0.2


class Largest(TorchDispatchMode):
    """The most numbers of 16 bits or more that one operator returned."""

    found = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(one, torch.Tensor) and one.element_size() >= 2:
                self.found = max(self.found, one.numel())
        return out


@pytest.mark.parametrize("rows", [1, 8])
def test_no_operator_of_an_eager_call_makes_the_dense_matrix(rows: int) -> None:
    body = bound(512, 256).bodies["self"]
    with torch.no_grad(), Largest() as seen:
        body(torch.randn(rows, 256))
    assert 0 < seen.found <= 512 * 256 // pieces.PIECES
    with Largest() as whole:
        body.dense()
    assert whole.found == 512 * 256


@pytest.mark.parametrize("rows", [1, 24])
def test_no_buffer_of_a_captured_call_holds_the_dense_matrix(rows: int) -> None:
    torch.compiler.reset()
    body = bound(512, 256).bodies["self"]
    x = torch.randn(rows, 256)
    with torch.no_grad():
        step = torch.compile(body, fullgraph=True, dynamic=False)
        found, (code, *_) = run_and_get_code(step, x)
        assert torch.allclose(found, body(x), rtol=1e-4, atol=1e-4)
    called = code.partition("def call(")[2]
    shapes = re.findall(r"empty_strided_cpu\(\(([^)]*)\)[^)]*\), torch\.float", called)
    sizes = [math.prod(int(n) for n in shape.split(",") if n.strip()) for shape in shapes]
    assert sizes
    assert max(sizes) <= 512 * 256 // pieces.PIECES
    assert ("extern_kernels" in called) is (rows > nvfp4.FEW)


def test_what_it_holds_is_what_it_says() -> None:
    seam = bound(96, 64)
    held = list(seam.bodies["self"].buffers())
    assert seam.weight_bytes == sum(t.numel() * t.element_size() for t in held)
    assert seam.weight_bytes == 96 * 32 + 96 * 4 + 8
    assert seam.weight_bytes < 96 * 64 * 4 / 7
    assert [t.numel() for t in held if t.is_floating_point() and t.element_size() > 1] == [1, 1]


@pytest.mark.parametrize("width", [8, 20, 72])
def test_a_width_that_whole_blocks_do_not_fill(width: int) -> None:
    with pytest.raises(Refusal, match=f"the width {width} is not a multiple of 16") as caught:
        loader.bind(record("nvfp4_dynamic"), request({"weight": torch.ones(8, width)}))
    assert caught.value.reason is Reason.SHAPE
    given = packed() | {"weight_packed": torch.zeros(96, width // 2, dtype=torch.uint8)}
    with pytest.raises(Refusal, match=f"{width} is not a multiple of 16") as caught:
        loader.bind_packed(record("nvfp4_dynamic"), request(given))
    assert caught.value.reason is Reason.SHAPE


NAN8 = torch.full((96, 4), math.nan).to(torch.float8_e4m3fn)


@pytest.mark.parametrize(
    ("change", "reason", "match"),
    [
        ({"weight_packed": None}, Reason.BINDING, "'weight_packed' was not given"),
        ({"input_global_scale": None}, Reason.BINDING, "'input_global_scale' was not given"),
        ({"weight_packed": torch.zeros(96, 32)}, Reason.DTYPE, "float32; torch.uint8"),
        ({"weight_packed": torch.zeros(96, dtype=torch.uint8)}, Reason.LAYOUT, "2 dims"),
        ({"weight_scale": torch.ones(96, 4)}, Reason.DTYPE, "e4m3fn was expected"),
        ({"weight_scale": NAN8[:, :2]}, Reason.LAYOUT, r"\[96, 2\]; \[96, 4\]"),
        ({"weight_scale": NAN8}, Reason.NONFINITE, "a NaN or a sign"),
        ({"weight_global_scale": torch.ones(2)}, Reason.LAYOUT, r"\[2\]; \[1\]"),
        ({"weight_global_scale": torch.tensor([math.inf])}, Reason.NONFINITE, "infinity"),
        ({"input_global_scale": torch.tensor([-1.0])}, Reason.DEAD, "not above zero"),
        ({"bias": torch.ones(5)}, Reason.LAYOUT, r"\[5\]; \[96\]"),
    ],
)
def test_packed_tensors_that_are_not_the_formats(
    change: dict[str, Any], reason: Reason, match: str
) -> None:
    given = {n: t for n, t in (packed() | change).items() if t is not None}
    with pytest.raises(Refusal, match=match) as caught:
        loader.bind_packed(record("nvfp4_dynamic"), request(given))
    assert caught.value.reason is reason
    assert caught.value.subject == "a"


def test_an_impl_that_packs_itself_takes_nothing_packed() -> None:
    asked = replace(request({"weight": torch.ones(8, 16)}), form="decode")
    with pytest.raises(Refusal, match="takes no packed ones") as caught:
        loader.bind_packed(record("cpu_fp16", "decode"), asked)
    assert caught.value.reason is Reason.FORM


@pytest.mark.parametrize("kind", ["int8", "fp8"])
@pytest.mark.parametrize("form", ["dynamic", "static"])
def test_eight_bits_are_taken_as_they_are_stored(kind: str, form: str) -> None:
    torch.manual_seed(4)
    levels, scale = eight.pack(torch.randn(24, 40), kind)
    given = {"weight": levels, "weight_scale": scale[:, None], "input_scale": torch.tensor([0.05])}
    seam = loader.bind_packed(record(f"{kind}_packed", form), request(given, form))
    body = seam.bodies["self"]
    assert body.weight0.dtype == levels.dtype
    assert torch.equal(body.weight0.float(), levels.float())
    assert seam.weight_bytes == 24 * 40 + 24 * 4 + (4 if form == "static" else 0)
    x = torch.randn(3, 40)
    one = 0.05 if form == "static" else x.abs().amax(-1, keepdim=True) / eight.TOP[kind]
    stepped = x / one
    low = stepped.clamp(-128, 127).round() if kind == "int8" else stepped.clamp(-448, 448)
    low = low.to(levels.dtype).float()
    expected = F.linear(low, levels.float()) * scale * one
    assert torch.allclose(body(x), expected, rtol=1e-5, atol=1e-5)
    whole = loader.bind_packed(
        record(f"{kind}_packed", form), request(given | {"weight_scale": scale[:1]}, form)
    )
    assert torch.equal(whole.bodies["self"].dense(), levels.float() * scale[0])
    if kind == "fp8":
        broken = levels.float().index_fill(0, torch.tensor([3]), math.nan).to(levels.dtype)
        with pytest.raises(Refusal, match="40 of 960 e4m3 weights are NaN") as caught:
            loader.bind_packed(
                record("fp8_packed", form), request(given | {"weight": broken}, form)
            )
        assert caught.value.reason is Reason.NONFINITE
    wrong = given | {"weight": levels.float()}
    with pytest.raises(Refusal, match="was expected") as caught:
        loader.bind_packed(record(f"{kind}_packed", form), request(wrong, form))
    assert caught.value.reason is Reason.DTYPE
