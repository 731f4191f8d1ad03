"""What an impl refuses to bind, and the packed projections' guard on identity and order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from flashrt_runtime.impls.shared.body import smoke

from flashrt_runtime import impl_loader as loader
from flashrt_runtime.contract import BindRequest, BoundSeam, Seam
from flashrt_runtime.reason import Reason, Refusal

FFN = {"norm": "host", "activation": "silu", "residual": "host", "modulation": "none"}
LINEAR = {"bias": "none", "epilogue": "none"}
BACKENDS = ("cpu_fp16", "cpu_w8a16", "cpu_int8", "cpu_fp8")
SCALES = {"x": 0.05, "x_after_norm": 0.05, "act_after_mul": 0.05}


def linear(weights: Mapping[str, torch.Tensor], **change: object) -> BindRequest:
    seam = Seam("linear:a", "linear_proj@1", {"self": "a"}, LINEAR, {}, {})
    return BindRequest(replace(seam, **change), weights, SCALES, "decode")


def ffn(weights: Mapping[str, torch.Tensor]) -> BindRequest:
    seam = Seam("ffn:a", "decoder_ffn@1", {"self": "a"}, FFN, {}, {})
    return BindRequest(seam, weights, SCALES, "decode")


def bind(request: BindRequest, backend: str) -> BoundSeam:
    record = {"structure": request.seam.structure, "backend": backend, "form": request.form}
    return loader.bind(record, request)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_nonfinite_weight(backend: str, value: float) -> None:
    weight = torch.ones(8, 16)
    weight[3, 3] = value
    with pytest.raises(Refusal, match="1 of 128 elements") as caught:
        bind(linear({"weight": weight}), backend)
    assert caught.value.reason is Reason.NONFINITE
    assert caught.value.subject == "linear:a"


def test_a_weight_beyond_fp16() -> None:
    weight = torch.full((8, 16), 65520.0)
    with pytest.raises(Refusal, match="infinite in fp16") as caught:
        bind(linear({"weight": weight}), "cpu_fp16")
    assert caught.value.reason is Reason.NONFINITE
    assert bind(linear({"weight": weight - 16}), "cpu_fp16").weight_bytes == 256


@pytest.mark.parametrize("backend", ["cpu_int8", "cpu_fp8"])
@pytest.mark.parametrize(
    ("scales", "reason"),
    [
        ({}, Reason.UNCALIBRATED),
        ({"x": 0.0}, Reason.DEAD),
        ({"x": -1.0}, Reason.DEAD),
        ({"x": 1e-45}, Reason.DEAD),
        ({"x": math.nan}, Reason.NONFINITE),
        ({"x": math.inf}, Reason.NONFINITE),
    ],
)
def test_a_scale_that_is_none(backend: str, scales: dict[str, float], reason: Reason) -> None:
    request = replace(linear({"weight": torch.ones(8, 16)}), scales=scales)
    with pytest.raises(Refusal, match="'x'") as caught:
        bind(request, backend)
    assert caught.value.reason is reason


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_slot_that_is_missing_or_is_no_matrix(backend: str) -> None:
    with pytest.raises(Refusal, match="'weight' was not given") as caught:
        bind(linear({}), backend)
    assert caught.value.reason is Reason.BINDING
    with pytest.raises(Refusal, match="has 1 dims") as caught:
        bind(linear({"weight": torch.ones(8)}), backend)
    assert caught.value.reason is Reason.LAYOUT


def test_a_bias_of_another_width() -> None:
    weights = {"weight": torch.ones(8, 16), "bias": torch.ones(16)}
    variant = {**LINEAR, "bias": "present"}
    with pytest.raises(Refusal, match=r"shape \[16\]; \[8\] was expected") as caught:
        bind(linear(weights, variant=variant), "cpu_fp16")
    assert caught.value.reason is Reason.LAYOUT


@pytest.mark.parametrize("stated", ["none", "present"])
def test_a_bias_that_the_variant_denies(stated: str) -> None:
    weights = {"weight": torch.ones(8, 16)}
    if stated == "none":
        weights["bias"] = torch.ones(8)
    with pytest.raises(Refusal, match=f"says bias {stated}") as caught:
        bind(linear(weights, variant={**LINEAR, "bias": stated}), "cpu_w8a16")
    assert caught.value.reason is Reason.BINDING


@pytest.mark.parametrize("backend", BACKENDS)
def test_matrices_that_do_not_fit_one_another(backend: str) -> None:
    weights = {n: torch.ones(32, 16) for n in ("gate", "up", "down")}
    with pytest.raises(Refusal, match=r"down \[32, 16\]") as caught:
        bind(ffn(weights), backend)
    assert caught.value.reason is Reason.LAYOUT


class Faulty(torch.nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fault == "raises":
            raise RuntimeError("needs SM110")
        if self.fault == "shape":
            return x[:, :1]
        return x / 0.0


@pytest.mark.parametrize(
    ("fault", "reason", "said"),
    [
        ("raises", Reason.FORM, "needs SM110"),
        ("shape", Reason.FORM, r"\[1, 1\]; \[1, 4\]"),
        ("nan", Reason.NONFINITE, "not finite"),
    ],
)
def test_a_smoke_launch_that_fails(fault: str, reason: Reason, said: str) -> None:
    with pytest.raises(Refusal, match=said) as caught:
        smoke(Faulty(fault), 4, 4, "linear:a")
    assert caught.value.reason is reason


def packed(order: tuple[str, ...] = ("q", "k", "v"), **change: torch.Tensor) -> BoundSeam:
    seam = Seam("qkv:0", "qkv_pack@1", {r: f"a.{r}" for r in order}, {"bias": "none"}, {}, {})
    weights = {"q": torch.randn(16, 8), "k": torch.randn(4, 8), "v": torch.randn(4, 8), **change}
    return bind(BindRequest(seam, weights, {}, "general"), "cpu_fp32")


def test_siblings_in_another_order_bind_in_that_order() -> None:
    weights = {r: torch.randn(4, 8) for r in ("q", "k", "v")}
    seam = packed(("k", "v", "q"), **weights)
    x = torch.randn(3, 8)
    for role, body in seam.bodies.items():
        assert torch.allclose(body(x), x @ weights[role].t(), atol=1e-5)
    assert seam.notes == {"order": "k,v,q"}


def test_an_equal_tensor_that_is_not_the_same_is_refused() -> None:
    seam = packed()
    x = torch.randn(2, 8)
    seam.bodies["q"](x)
    with pytest.raises(Refusal, match="k was called with another tensor") as caught:
        seam.bodies["k"](x.clone())
    assert caught.value.reason is Reason.SHARED_INPUT


def test_a_sibling_out_of_order_is_refused() -> None:
    seam = packed()
    x = torch.randn(2, 8)
    seam.bodies["q"](x)
    with pytest.raises(Refusal, match="v was called with the same tensor while k was waiting"):
        seam.bodies["v"](x)
    with pytest.raises(Refusal, match="nothing was waiting"):
        seam.bodies["k"](x)


def test_nothing_is_kept_past_the_last_sibling() -> None:
    seam = packed()
    x = torch.randn(2, 8)
    for body in seam.bodies.values():
        body(x)
    holder = seam.bodies["k"].holder
    assert holder.source is None
    assert holder.parts == []
    with pytest.raises(Refusal, match="nothing was waiting"):
        seam.bodies["v"](x)


def test_a_call_that_was_interrupted_leaves_no_stale_part() -> None:
    seam = packed()
    old, new = torch.randn(2, 8), torch.randn(2, 8)
    seam.bodies["q"](old)
    seam.bodies["q"](new)
    with pytest.raises(Refusal, match="another tensor"):
        seam.bodies["k"](old)


def test_two_seams_share_nothing() -> None:
    first, second = packed(), packed()
    x = torch.randn(2, 8)
    first.bodies["q"](x)
    with pytest.raises(Refusal, match="nothing was waiting"):
        second.bodies["k"](x)


def test_projections_that_cannot_be_packed() -> None:
    with pytest.raises(Refusal, match="different widths") as caught:
        packed(v=torch.randn(4, 6))
    assert caught.value.reason is Reason.LAYOUT
    with pytest.raises(Refusal, match="q, k and v were expected") as caught:
        packed(("q", "k"))
    assert caught.value.reason is Reason.BINDING
