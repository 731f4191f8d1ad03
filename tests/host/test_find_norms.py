"""norm_fused: recognised by what a module computes, and by nothing else."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from flashrt.host.discovery import Discovery, discover
from flashrt.host.discovery.near_miss import NORM_FUSED
from flashrt_runtime.contract import Point
from flashrt_runtime.reason import Reason

D = 32


class Norm(nn.Module):
    """A norm whose name, class and parameter names say nothing."""

    def __init__(self, function: Callable[..., torch.Tensor], count: int, eps: float = 1e-6):
        super().__init__()
        torch.manual_seed(3)
        for name in "zy"[:count]:
            self.register_parameter(name, nn.Parameter(torch.randn(D) * 0.3 + 0.5))
        self.function, self.small = function, eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.small, *self.parameters())


def rms(x: torch.Tensor, eps: float, *w: torch.Tensor) -> torch.Tensor:
    unit = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return unit * w[0] if w else unit


def offset(x: torch.Tensor, eps: float, w: torch.Tensor) -> torch.Tensor:
    return rms(x, eps) * (1.0 + w)


def layer(x: torch.Tensor, eps: float, *wb: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    unit = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    if wb:
        unit = unit * wb[0]
    return unit + wb[1] if len(wb) == 2 else unit


def low(x: torch.Tensor, eps: float, w: torch.Tensor) -> torch.Tensor:
    half = x.bfloat16()
    square = half.square().mean(-1, keepdim=True)
    return (half * torch.rsqrt(square + eps)).to(x.dtype) * w


class Host(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.before, self.n, self.after = nn.Linear(D, D), norm, nn.Linear(D, D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.n(self.before(x)))


def find(norm: nn.Module, dtype: torch.dtype = torch.float32) -> Discovery:
    model = Host(norm).eval().to(dtype)
    x = torch.randn(2, 9, D, generator=torch.Generator().manual_seed(0)).to(dtype)
    return discover(model, lambda: model(x * 3))


def why(found: Discovery, path: str = "n") -> tuple[Reason, str]:
    return next(
        (m.because.reason, m.because.detail)
        for m in found.refusals
        if (m.path, m.structure) == (path, NORM_FUSED)
    )


@pytest.mark.parametrize(
    ("function", "count", "kind"),
    [
        (rms, 1, "rms_direct"),
        (offset, 1, "rms_offset"),
        (layer, 2, "layer_affine"),
        (layer, 0, "layer_identity"),
    ],
)
@pytest.mark.parametrize("eps", [1e-5, 3e-4])
def test_a_norm_is_what_it_computes(
    function: Callable[..., torch.Tensor], count: int, kind: str, eps: float
) -> None:
    (seam,) = find(Norm(function, count, eps)).of(NORM_FUSED)
    assert seam.members == {"self": "n"}
    assert seam.variant == {"norm": kind, "eps": f"{eps:g}", "residual": "none"}
    assert seam.dims == {"D": D}
    keys = {0: {}, 1: {"weight": "n.z"}, 2: {"weight": "n.z", "bias": "n.y"}}
    assert seam.weights == keys[count]
    assert seam.points == {"y": Point("n", "output")}


def test_a_number_that_the_module_holds_is_not_believed() -> None:
    norm = Norm(rms, 1, 1e-6)
    norm.slope = 5e-3  # another small number, which is tried and does not fit
    (seam,) = find(norm).of(NORM_FUSED)
    assert seam.variant["eps"] == "1e-06"
    lying = Norm(lambda x, _eps, w: rms(x, 1e-5, w), 1, 1e-6)
    (seam,) = find(lying).of(NORM_FUSED)
    assert seam.variant["eps"] == "1e-05"


def test_an_eps_that_nothing_says_is_not_guessed() -> None:
    hidden = Norm(lambda x, _eps, w: rms(x, 2.34e-3, w), 1, 1e-6)
    found = find(hidden)
    assert found.of(NORM_FUSED) == ()
    assert why(found)[0] in (Reason.DTYPE, Reason.AMBIGUOUS)


def test_an_affine_with_one_side_is_refused_in_a_layer_norm_seat() -> None:
    found = find(nn.LayerNorm(D, bias=False))
    assert found.of(NORM_FUSED) == ()
    reason, detail = why(found)
    assert reason is Reason.STRUCTURE
    assert "one-sided affine" in detail


def test_a_mean_square_without_a_weight_is_no_form_of_the_catalog() -> None:
    found = find(Norm(rms, 0))
    assert found.of(NORM_FUSED) == ()
    assert why(found)[0] is Reason.STRUCTURE


def test_low_precision_statistics_are_refused() -> None:
    found = find(Norm(low, 1))
    assert found.of(NORM_FUSED) == ()
    reason, detail = why(found)
    assert reason is Reason.DTYPE
    assert "low-precision" in detail


def test_half_precision_rows_are_outside_of_the_boundary() -> None:
    def upcast(x: torch.Tensor, eps: float, w: torch.Tensor) -> torch.Tensor:
        return rms(x.float(), eps, w.float()).to(x.dtype)

    assert why(find(Norm(upcast, 1), torch.bfloat16)) == (
        Reason.DTYPE,
        "it reads bfloat16; the boundary of norm_fused is float32",
    )
    reason, detail = why(find(Norm(low, 1), torch.bfloat16))
    assert reason is Reason.DTYPE
    assert "low precision" in detail


def test_other_modules_are_neither_norms_nor_nearly() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(D))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    for module in (nn.SiLU(), nn.Identity(), nn.Dropout(0.1), Scale(), nn.Softmax(-1)):
        found = find(module)
        assert [s.id for s in found.of(NORM_FUSED)] == []
        assert [m.path for m in found.refusals if m.structure == NORM_FUSED] == [""]


def test_what_only_hands_normal_rows_on_is_no_norm() -> None:
    found = find(nn.Sequential(Norm(layer, 0), nn.Dropout(0.5)))
    assert [s.id for s in found.of(NORM_FUSED)] == ["n.0"]


class Added(Norm):
    """Adds a residual, norms the sum, returns both."""

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        return self.function(total, self.small, *self.parameters()), total


def test_a_norm_that_adds_a_residual_is_seen_to() -> None:
    class Carries(Host):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y, total = self.n(self.before(x), x)
            return self.after(y) + total

    model = Carries(Added(rms, 1)).eval()
    (seam,) = discover(model, lambda: model(torch.randn(6, D))).of(NORM_FUSED)
    assert seam.variant == {"norm": "rms_direct", "eps": "1e-06", "residual": "add"}


def test_a_view_that_is_not_contiguous_is_refused() -> None:
    class Turned(Host):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            turned = self.before(x).transpose(0, 1).contiguous().transpose(0, 1)
            return self.after(self.n(turned))

    model = Turned(Norm(rms, 1)).eval()
    assert why(discover(model, lambda: model(torch.randn(6, 5, D)))) == (
        Reason.LAYOUT,
        "it reads a view that is not contiguous",
    )
