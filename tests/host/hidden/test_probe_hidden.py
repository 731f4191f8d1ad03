"""Norms, feed-forwards and patches that differ on values or rows that were not observed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as f

from flashrt.host.discovery import Discovery, discover
from flashrt_runtime.reason import Reason


class Around(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 0


def found(inner: nn.Module, x: torch.Tensor) -> Discovery:
    model = Around(inner).eval()
    return discover(model, lambda: model(x))


class Rms(nn.Module):
    def __init__(self, then: Callable[..., torch.Tensor] = lambda y: y, batch: int = 0) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.rand(16) + 0.5), 1e-6
        self.then, self.batch, self.calls = then, batch, [0]
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert not self.batch or x.shape[0] == self.batch
        self.count += 1
        self.calls[0] += 1
        return self.then(x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight)


def test_a_norm_is_left_as_it_was() -> None:
    norm = Rms()
    assert found(norm, torch.randn(2, 6, 16)).of("norm_fused@1")
    assert (norm.count.item(), norm.calls) == (1, [1])


def test_a_norm_of_one_batch_is_probed_in_it() -> None:
    assert found(Rms(batch=2), torch.randn(2, 6, 16)).of("norm_fused@1")


class Picky(Rms):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.abs().amax() < 10
        return super().forward(x)


def test_a_norm_that_raises_on_other_rows_is_refused_alone() -> None:
    model = nn.Sequential(Picky(), nn.Linear(16, 16), nn.ReLU()).eval()
    result = discover(model, lambda: model(torch.randn(2, 6, 16)))
    assert [m.because.reason for m in result.refusals if m.path == "0"] == [Reason.HOST]
    assert [s.id for s in result.of("linear_proj@1")] == ["1"]


@pytest.mark.parametrize("limit", [3.0, 4.0])
def test_a_clamped_norm_is_refused(limit: float) -> None:
    torch.manual_seed(0)
    norm = Rms(lambda y: y.clamp(-limit, limit))
    assert not found(norm, torch.randn(2, 3, 16) * 0.3).of("norm_fused@1")


def test_one_sided_after_a_norm_is_not_rms() -> None:
    model = nn.Sequential(
        nn.LayerNorm(16, elementwise_affine=False), nn.LayerNorm(16, bias=False), nn.Tanh()
    ).eval()
    nn.init.normal_(model[1].weight)
    result = discover(model, lambda: model(torch.randn(2, 6, 16)))
    assert [s.id for s in result.of("norm_fused@1")] == ["0"]


class L2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.randn(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return f.normalize(x, dim=-1) * 4 * self.gamma


def test_normalize_is_not_rms() -> None:
    assert not found(L2(), torch.randn(2, 6, 16)).of("norm_fused@1")


class Gated(nn.Module):
    def __init__(self, act: Callable[..., torch.Tensor], *, fixed: bool = False) -> None:
        super().__init__()
        self.g, self.u, self.d = nn.Linear(16, 64), nn.Linear(16, 64), nn.Linear(64, 16)
        self.act, self.fixed, self.seen = act, fixed, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert not self.fixed or x.shape == (2, 6, 16)
        self.seen += 1
        return self.d(self.act(self.g(x)) * self.u(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "act",
    [
        lambda x: x * torch.sigmoid(1.2 * x),
        lambda x: 1.03 * f.silu(x),
        lambda x: f.silu(x.clamp(max=7)),
        lambda x: f.silu(x).clamp(max=60),
    ],
)
def test_nearly_silu_is_refused(dtype: torch.dtype, act: Callable[..., torch.Tensor]) -> None:
    torch.manual_seed(0)
    result = found(Gated(act).to(dtype), torch.randn(2, 6, 16).to(dtype))
    assert not result.of("decoder_ffn@1")


def test_a_gated_region_of_one_shape_with_a_small_gate() -> None:
    ffn = Gated(lambda x: f.gelu(x, approximate="tanh"), fixed=True)
    with torch.no_grad():
        ffn.g.weight.mul_(1e-3)
        ffn.g.bias.mul_(1e-3)
    (seam,) = found(ffn, torch.randn(2, 6, 16)).of("decoder_ffn@1")
    assert seam.variant["activation"] == "gelu_tanh"
    assert ffn.seen == 1


class Scale(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((16,), value))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gamma


class Vision(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.norm, self.ls = nn.LayerNorm(16), Scale(value)
        self.fc1, self.fc2 = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.ls(self.fc2(f.gelu(self.fc1(self.norm(x)))))


@pytest.mark.parametrize("value", [0.0, 1e-6, 1.0])
def test_the_layer_scale_is_the_vector_that_scales(value: float) -> None:
    (seam,) = found(Vision(value), torch.randn(2, 6, 16)).of("vision_ffn@1")
    assert seam.weights["layer_scale"] == "inner.ls.gamma"
    assert seam.variant["residual"] == "add"


class Patch(nn.Module):
    def __init__(self, row: int | None, padding: str | int = 0) -> None:
        super().__init__()
        self.proj = nn.Conv3d(3, 8, (1, 2, 2), stride=(1, 2, 2), padding=padding)
        self.row = row

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.proj(x.view(-1, 3, 1, 2, 2)).flatten(1).clone()
        if self.row is not None:
            y[self.row] = 0
        return y


@pytest.mark.parametrize("row", [0, 1, 7, 15])
def test_every_row_of_a_patch_is_looked_at(row: int) -> None:
    x = torch.randn(16, 12)
    assert not found(Patch(row), x).of("patch_projection@1")
    assert found(Patch(None, "valid"), x).of("patch_projection@1")


class Trio(nn.Module):
    def __init__(self, write: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(16, 16) for _ in range(3))
        self.write = write

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.a(x)
        self.write(x)
        q, k, v = (t[:, None] for t in (a, self.b(x), self.c(x)))
        return f.scaled_dot_product_attention(q, k, v)


def test_a_write_that_torch_does_not_count_is_seen() -> None:
    def data(x: torch.Tensor) -> None:
        x.data[:, -1] = 0

    def plain(x: torch.Tensor) -> None:
        x[:, 9] = 0

    def nothing(x: torch.Tensor) -> None:
        del x

    for write, packs in ((data, 0), (plain, 0), (nothing, 1)):
        model = Trio(write).eval()

        def forward(model: nn.Module = model) -> None:
            with torch.inference_mode():
                model(torch.randn(2, 23, 16))

        whole = nn.ModuleDict({"attention": model})
        with torch.no_grad():
            result = discover(whole.eval(), forward)
        assert len(result.of("qkv_pack@1")) == packs
