"""Modules that are a projection on some rows, features or sizes only, and are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as f
from torch.nn.utils import parametrizations, prune

from flashrt.host.discovery import Discovery, discover
from flashrt_runtime.reason import Reason, Refusal


class Around(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 0


class Then(nn.Linear):
    """A linear, and something after it."""

    then: Callable[[torch.Tensor], torch.Tensor]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.then(super().forward(x))


def found(inner: nn.Module, x: torch.Tensor) -> Discovery:
    model = Around(inner).eval()
    return discover(model, lambda: model(x))


def reason(found: Discovery) -> Reason:
    return next(m.because.reason for m in found.refusals if m.path == "inner")


def zero(index: tuple[object, ...]) -> Callable[[torch.Tensor], torch.Tensor]:
    def then(y: torch.Tensor) -> torch.Tensor:
        y[index] = 0
        return y

    return then


@pytest.mark.parametrize("out", [1, 16, 64])
@pytest.mark.parametrize(
    "then",
    [
        torch.relu,
        torch.abs,
        lambda y: y.clamp(-5, 5),
        zero((slice(None), -1)),
        zero((slice(None), 7)),
        zero((..., -1)),
    ],
)
def test_work_after_a_linear_is_seen(out: int, then: Callable[..., torch.Tensor]) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 40, 16)
    x[0, 0] = 0
    linear = Then(16, out)
    linear.then = then
    result = found(linear, x)
    assert not result.of("linear_proj@1")
    assert reason(result) in (Reason.LAYOUT, Reason.STRUCTURE)
    linear.then = lambda y: y
    assert len(found(linear, x).of("linear_proj@1")) == 1


def test_a_pruned_feature_is_seen() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(16, 64)
    with torch.no_grad():
        linear.weight[3] *= 1e-3
    prune.ln_structured(linear, "weight", amount=1, n=2, dim=0)
    assert not found(linear, torch.randn(2, 6, 16)).of("linear_proj@1")


def test_an_input_of_zeros_shows_nothing() -> None:
    assert reason(found(nn.Linear(16, 8), torch.zeros(2, 6, 16))) is Reason.AMBIGUOUS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_linear_of_any_dtype_and_bias_is_one(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(64, 96).to(dtype)
    x = (torch.randn(3, 200, 64) + 3).to(dtype)
    assert len(found(linear, x).of("linear_proj@1")) == 1


@pytest.mark.parametrize(
    ("inner", "x"),
    [
        (nn.Linear(16, 0), torch.randn(2, 16)),
        (nn.Linear(16, 4), torch.randn(2, 16).to_sparse()),
        (nn.Linear(16, 4), torch.nested.nested_tensor([torch.randn(3, 16), torch.randn(2, 16)])),
        (nn.Linear(16, 4), torch.randn(0, 16)),
        (parametrizations.weight_norm(nn.Linear(16, 4)), torch.randn(2, 16)),
        (nn.utils.weight_norm(nn.Linear(16, 4)), torch.randn(2, 16)),
    ],
)
def test_odd_linears_get_a_line(inner: nn.Module, x: torch.Tensor) -> None:
    result = found(inner, x)
    assert not result.of("linear_proj@1")
    assert any(m.structure == "linear_proj@1" and m.path == "inner" for m in result.refusals)


class Odd(nn.Module):
    """A linear that is called, a lazy one that is not, and one that raises."""

    def __init__(self) -> None:
        super().__init__()
        self.good, self.lazy, self.bad = nn.Linear(16, 16), nn.LazyLinear(8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            self.bad(x)
        except RuntimeError:
            return f.relu(self.good(x))
        return x


def test_a_lazy_and_a_raising_module_leave_the_rest() -> None:
    model = Odd().eval()
    result = discover(model, lambda: model(torch.randn(2, 16)))
    assert [seam.id for seam in result.of("linear_proj@1")] == ["good"]
    assert [m.because.reason for m in result.refusals if m.path == "bad"] == [Reason.HOST]


def test_hooked_modules_are_refused() -> None:
    linear = nn.Linear(16, 16)
    linear.register_forward_pre_hook(lambda _m, args: (args[0] * 1.5,))
    assert reason(found(linear, torch.randn(2, 16))) is Reason.HOST


def test_global_hooks_are_refused() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda _m, _a, out: out)
    try:
        with pytest.raises(Refusal, match="global forward hooks"):
            found(nn.Linear(16, 16), torch.randn(2, 16))
    finally:
        handle.remove()


def test_a_tree_without_end_is_refused() -> None:
    model = Around(nn.Linear(16, 16)).eval()
    model.inner.me = model
    with pytest.raises(Refusal, match="holds itself"):
        discover(model, lambda: None)
