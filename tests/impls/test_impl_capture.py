"""Every operator survives the captured form, once per seam, and means the same there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from flashrt_runtime.impls.decoder_ffn import triton_fp8
from flashrt_runtime.impls.shared import fp16, int8
from flashrt_runtime.impls.shared.body import LinearBody
from flashrt_runtime.impls.shared.processor import Processor
from torch._inductor.compile_fx import compile_fx
from torch._inductor.utils import run_and_get_code

from flashrt.spec import load
from flashrt.spec.harness import Slots, draw
from flashrt_runtime import impl_loader as loader
from flashrt_runtime.contract import BindRequest, BoundSeam, Seam

CPU = [m for m in loader.manifests() if m.device == "cpu"]
WIDTHS = {"D": (64,), "F": (96,), "K": (64,), "N": (48,), "Nq": (64,), "Nk": (32,), "Nv": (32,)}
WIDTHS |= {"C": (4,), "Pt": (1,), "Ph": (4,), "Pw": (4,)}  # 64 in all


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Layers(torch.nn.Module):
    """Seams that read one input; every output is returned."""

    def __init__(self, seams: list[BoundSeam]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleList(seam.bodies.values()) for seam in seams
        )

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Outputs of all bodies, seam by seam."""
        return [body(x).to(x.dtype) for layer in self.layers for body in layer]


def dtype_of(manifest: loader.Manifest) -> torch.dtype:
    """The boundary's dtype."""
    return getattr(torch, manifest.forms[0].input_dtype[0])


def seams_of(manifest: loader.Manifest, rows: int, bind_case: Any) -> list[BoundSeam]:
    """Two seams of every form, so that one graph shows each form twice."""
    spec = load(manifest.structure)
    sizes = {name: WIDTHS[name] for name in spec.dims if name != spec.rows} | {spec.rows: (rows,)}
    bound = []
    for i, form in enumerate(manifest.forms):
        drawn = {"sizes": sizes, "slots": Slots.NONE, "dtype": dtype_of(manifest)}
        for case in draw(spec, 2, i, variants=form.variants, **drawn):
            bound.append(bind_case(loader.ImplForm(manifest, form), case))
    return bound


@pytest.mark.parametrize("manifest", CPU, ids=lambda m: m.id)
def test_survives_capture_once_per_seam(manifest: loader.Manifest, bind_case: Any) -> None:
    rows = 1 if "ffn" in manifest.id else 16
    seams = seams_of(manifest, rows, bind_case)
    layers = Layers(seams).eval()
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return compile_fx(graph, inputs)

    x = torch.randn(1, rows, 64).to(dtype_of(manifest))
    close = (
        {"rtol": 1e-4, "atol": 1e-4} if x.dtype == torch.float32 else {"rtol": 2e-2, "atol": 0.2}
    )
    if any(form.wire_out for form in manifest.forms):
        close = {"rtol": 0.126, "atol": 0.01}  # one step of e4m3: a rounding may fall either way
    with torch.no_grad():
        step = torch.compile(layers, backend=backend, fullgraph=True, dynamic=False)
        captured = step(x)
        again = step(x + 0.5)
        assert len(graphs) == 1
        for found, expected in zip(captured, layers(x), strict=True):
            assert torch.allclose(found, expected, **close)
        for found, expected in zip(again, layers(x + 0.5), strict=True):
            assert torch.allclose(found, expected, **close)
    check_nodes(graphs[0], manifest, len(seams))


def check_nodes(graph: torch.fx.GraphModule, manifest: loader.Manifest, seams: int) -> None:
    """One node a seam, its id last, and no number that another process would not have."""
    nodes = [n for n in graph.graph.nodes if str(n.target).startswith("flashrt.")]
    assert [str(n.target) for n in nodes] == [
        manifest.operator.replace("::", ".") + ".default"
    ] * seams
    assert all(isinstance(n.args[-1], str) and ":case." in n.args[-1] for n in nodes)
    plain = [a for n in nodes for a in n.args if not isinstance(a, torch.fx.Node | list | str)]
    assert set(plain) <= {None}


@pytest.mark.parametrize("backend", ["cpu_fp16", "cpu_w8a16", "cpu_int8", "cpu_fp8"])
def test_decode_is_one_fused_loop_over_the_packed_matrix(backend: str, bind_case: Any) -> None:
    manifest = next(m for m in CPU if m.backend == backend and "linear" in m.id)
    layers = Layers(seams_of(manifest, 1, bind_case)[:1])
    with torch.no_grad():
        step = torch.compile(layers, fullgraph=True, dynamic=False)
        _, (code, *_) = run_and_get_code(step, torch.randn(1, 64))
    called = code.partition("def call(")[2]
    assert "cpp_fused" in called
    assert "extern_kernels" not in called
    assert "_linear" not in called


def test_the_seam_is_told_apart_by_its_id(bind_case: Any) -> None:
    manifest = next(m for m in CPU if m.backend == "cpu_fp16" and "linear" in m.id)
    seams = seams_of(manifest, 1, bind_case)[:2]
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    torch.compile(Layers(seams), backend=backend, fullgraph=True)(torch.randn(1, 64))
    ids = [n.args[-1] for n in graphs[0].graph.nodes if str(n.target).startswith("flashrt.")]
    assert len(set(ids)) == 2


def test_the_reduced_product_survives_capture() -> None:
    torch.manual_seed(0)
    weight = torch.randn(48, 64)
    packed = int8.pack_static(weight, "reduced", 0.03)
    body = LinearBody("flashrt::linear_proj_cpu_int8", packed, None, "reduced", "linear:a")
    x = torch.randn(5, 64)
    with torch.no_grad():
        step = torch.compile(body, fullgraph=True, dynamic=False)
        assert torch.allclose(step(x), body(x), rtol=1e-4, atol=1e-5)
        exact = LinearBody(
            "flashrt::linear_proj_cpu_int8",
            int8.pack_static(weight, "widen", 0.03),
            None,
            "widen",
            "linear:a",
        )
        drift = (body(x) - exact(x)).norm() / exact(x).norm()
    assert 0.0 < float(drift) < 0.02


def test_the_fbgemm_product_survives_capture() -> None:
    if not fp16._fbgemm_runs():
        assert fp16.kernel("general", Processor(vnni=False, wide=False)) == "widen"
        return
    weight = torch.randn(48, 64)
    name = "flashrt::linear_proj_cpu_fp16"
    request = BindRequest(Seam("s", "linear_proj@1", {"self": "a"}, {}, {}, {}), {}, {}, "general")
    body = LinearBody(name, fp16.pack(weight, "fbgemm", request), None, "fbgemm", "linear:a")
    x = torch.randn(5, 64)
    with torch.no_grad():
        step = torch.compile(body, fullgraph=True, dynamic=False)
        for given in (x, x * 3):
            expected = torch.nn.functional.linear(given, weight)
            assert torch.allclose(step(given), expected, rtol=1e-2, atol=1e-2)


def test_packed_siblings_survive_capture(bind_case: Any) -> None:
    served = ("qkv_pack@1", "cpu_fp32")
    manifest = next(m for m in CPU if (m.structure, m.backend) == served)
    seams = seams_of(manifest, 2, bind_case)
    layers = Layers(seams)
    x = torch.randn(2, 64)
    step = torch.compile(layers, backend="eager", fullgraph=True)
    with torch.no_grad():
        for given in (x, x * 2, x - 1):
            for found, expected in zip(step(given), layers(given), strict=True):
                assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5)
    for seam in seams:
        assert seam.bodies["k"].holder.parts == []
        assert seam.bodies["k"].holder.source is None


def test_the_cuda_operator_traces_without_a_device() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(1, 4, 64, dtype=torch.bfloat16)
        packed = [torch.empty(1)] * 9
        out = torch.ops.flashrt.decoder_ffn_triton_fp8(x, packed, "decode:host:1e-06:silu", "s")
    assert triton_fp8.OPERATOR == "flashrt::decoder_ffn_triton_fp8"
    assert (tuple(out.shape), out.dtype) == ((1, 4, 64), torch.bfloat16)
