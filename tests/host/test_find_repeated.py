"""Modules that are looked at together, and what must still tell one of them from the others."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as f

from flashrt.host.discovery import Discovery, discover
from flashrt.host.discovery.attention import AttentionTap
from flashrt.host.discovery.near_miss import DECODER_BLOCK, DECODER_FFN, LINEAR_PROJ, NORM_FUSED
from flashrt.host.discovery.trace import trace

T, D, HEADS = 10, 32, 4
X = torch.randn(1, T, D, generator=torch.Generator().manual_seed(0))
ANGLE = torch.outer(torch.arange(T).float(), 1e4 ** (-torch.arange(4) / 4)).repeat(1, 2)[None]
TABLES = ANGLE.cos(), ANGLE.sin()


class Gated(nn.Module):
    def __init__(self, limit: float = 1e9, act: Callable = f.silu, last: Callable = abs) -> None:
        super().__init__()
        self.g, self.u, self.d = nn.Linear(D, 48), nn.Linear(D, 48), nn.Linear(48, D)
        self.limit, self.act, self.last = limit, act, last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.d(self.act(self.g(x)).clamp(max=self.limit) * self.u(x))
        return y if self.last is abs else self.last(y)


class Norm(nn.Module):
    def __init__(self, limit: float = 1e9) -> None:
        super().__init__()
        self.weight, self.eps, self.limit = nn.Parameter(torch.rand(D) + 0.5), 1e-6, limit

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return (wide * self.weight).clamp(-self.limit, self.limit)


def rows(model: nn.Module) -> Discovery:
    torch.manual_seed(1)
    model.eval().requires_grad_(False)
    return discover(model, lambda: model(X))


def ids(found: Discovery, structure: str) -> list[str]:
    return [seam.id for seam in found.of(structure)]


@pytest.mark.parametrize(
    "odd",
    [
        Gated(limit=30.0),
        Gated(act=lambda x: f.silu(x).clamp(max=30.0)),
        Gated(act=lambda x: f.silu(x.clamp(min=-9.0))),
    ],
)
def test_one_feed_forward_that_clamps_is_told_from_those_beside_it(odd: Gated) -> None:
    assert ids(rows(nn.Sequential(Gated(), odd, Gated())), DECODER_FFN) == ["0", "2"]
    assert ids(rows(nn.Sequential(Gated(), Gated(), Gated())), DECODER_FFN) == ["0", "1", "2"]


def test_one_norm_that_clamps_is_told_from_those_beside_it() -> None:
    model = nn.Sequential(Norm(), nn.Linear(D, D), Norm(limit=6.0), nn.Linear(D, D), Norm())
    assert ids(rows(model), NORM_FUSED) == ["0", "4"]


def test_one_feature_of_a_linear_that_is_not_torchs_is_looked_at() -> None:
    model = nn.Sequential(*(nn.Linear(D, 512) if i % 2 == 0 else nn.Linear(512, D) for i in (0, 1)))
    plain = model[0].forward

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = plain(x).clone()
        y[..., 77] += 0.5
        return y

    assert ids(rows(model), LINEAR_PROJ) == ["0", "1"]
    model[0].forward = forward
    assert ids(rows(model), LINEAR_PROJ) == ["1"]


@pytest.mark.parametrize(("row", "found"), [(None, ["0", "1"]), (0, ["1"]), (1, ["1"]), (7, ["1"])])
def test_work_on_any_row_after_the_last_projection_is_seen(row: int | None, found: list) -> None:
    def last(y: torch.Tensor) -> torch.Tensor:
        y = y.clone()
        if row is not None:
            y[:, row] = 0
        return y

    assert ids(rows(nn.Sequential(Gated(last=last), Gated())), DECODER_FFN) == found


class Core(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return f.scaled_dot_product_attention(q, k, v, is_causal=True)


class Inline(nn.Module):
    """A layer that calls its projections itself, around a module that only attends; or inside."""

    def __init__(self, *, inside: bool) -> None:
        super().__init__()
        self.n1, self.n2, self.m, self.core = Norm(), Norm(), Gated(), Core()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D, bias=False) for _ in "qkvo")
        for name in "gud":
            setattr(self.m, name, nn.Linear(*getattr(self.m, name).weight.T.shape, bias=False))
        self.inside = inside

    def forward(self, x: torch.Tensor, tables: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        n, cos, sin = self.n1(x), *(t[:, None] for t in tables)
        made = [p(n).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in (self.q, self.k, self.v)]
        for i in (0, 1):
            low, high = made[i].chunk(2, -1)
            made[i] = made[i] * cos + torch.cat((-high, low), -1) * sin
        attend = Core.forward if self.inside else Core.__call__
        y = attend(self.core, *made).transpose(1, 2).flatten(2)
        x = x + self.o(y)
        return x + self.m(self.n2(x))


class Host(nn.Module):
    def __init__(self, *, inside: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Inline(inside=inside) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, TABLES)
        return x


@pytest.mark.parametrize("inside", [True, False])
def test_a_layer_is_found_wherever_it_attends(inside: bool) -> None:
    assert ids(rows(Host(inside=inside)), DECODER_BLOCK) == ["layers.0", "layers.1"]


@pytest.mark.parametrize(("inside", "held"), [(True, False), (False, True)])
def test_what_is_around_attention_is_held_only_where_it_is_needed(inside: bool, held: bool) -> None:
    model = Host(inside=inside).eval().requires_grad_(False)
    tap = AttentionTap(model)
    trace(model, lambda: model(X), modes=(tap,))
    around = [frame for site in tap.sites for frame in site.frames() if frame is not site]
    assert len(tap.sites) == 2
    assert any(c.output is not None for frame in around for c in frame.children) is held
