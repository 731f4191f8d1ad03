"""Layers that do something of their own, where only all of a forward shows it, are told apart."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as f

from flashrt.host.discovery import discover
from flashrt_runtime.reason import Reason, Refusal

WIDTH, HEADS, KEYS, POSITIONS = 32, 4, 2, 64
BLOCKS = ["layers.0", "layers.1", "layers.2"]
Change = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]


def halves(x: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, dim=-1)
    return torch.cat((-high, low), dim=-1)


class Attend(nn.Module):
    def __init__(self, change: Change | None = None, *, flat: bool = False) -> None:
        super().__init__()
        size = WIDTH // HEADS
        self.change, self.flat = change, flat
        self.a = nn.Linear(WIDTH, WIDTH, bias=False)
        self.b = nn.Linear(WIDTH, KEYS * size, bias=False)
        self.c = nn.Linear(WIDTH, KEYS * size, bias=False)
        self.d = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, positions, _ = x.shape
        read = x.reshape(-1, WIDTH) if self.flat else x
        shape = (batch, positions, -1, WIDTH // HEADS)
        q, k, v = (one(read).view(shape).transpose(1, 2) for one in (self.a, self.b, self.c))
        q, k = (t * cos[:, None] + halves(t) * sin[:, None] for t in (q, k))
        if self.change is not None:
            q, k, v = self.change(q, k, v)
        out = f.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        out = out.transpose(1, 2).reshape(*read.shape)
        return self.d(out).view(x.shape)


class Feed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (nn.Linear(WIDTH, 48, bias=False) for _ in range(2))
        self.c = nn.Linear(48, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(f.silu(self.a(x)) * self.b(x))


class Layer(nn.Module):
    def __init__(self, attend: nn.Module) -> None:
        super().__init__()
        self.first, self.second = (nn.RMSNorm(WIDTH, eps=1e-6) for _ in range(2))
        self.attend, self.feed = attend, Feed()

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
        x = x + self.attend(self.first(x), cos, sin)
        return x + self.feed(self.second(x))


class Inline(Layer):
    """Attends in its own forward, and returns a tuple."""

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
        x = x + Attend.forward(self.attend, self.first(x), cos, sin)
        return x + self.feed(self.second(x)), None


class Host(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.after: Callable[[int, torch.Tensor], object] = lambda _i, _cos: None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rate = 10000.0 ** (-torch.arange(0, 8, 2) / 8)
        angle = (torch.arange(x.shape[1])[:, None] * rate).repeat(1, 2)[None]
        cos, sin = angle.cos(), angle.sin()
        for i, layer in enumerate(self.layers):
            out = layer(x, cos, sin)
            x = out[0] if isinstance(out, tuple) else out
            self.after(i, cos)
        return x


def host(*changes: Change | None, kind: type[Layer] = Layer, **named: Any) -> Host:
    torch.manual_seed(0)
    every = changes or (None,) * 3
    return Host(*(kind(Attend(one, **named)) for one in every)).eval().requires_grad_(False)


def found(model: Host, structure: str = "decoder_block@1", batch: int = 1) -> list[str]:
    torch.manual_seed(1)
    x = torch.randn(batch, POSITIONS, WIDTH)
    seams = [seam.id for seam in discover(model, lambda: model(x)).of(structure)]
    assert not [path for path, one in model.named_modules() if "forward" in vars(one)]
    return seams


def louder(role: int, at: int) -> Change:
    def change(*three: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = [t.clone() for t in three]
        made[role][:, :, at] *= 2
        return tuple(made)

    return change


@pytest.mark.parametrize("role", [0, 1, 2])
@pytest.mark.parametrize("at", [0, 5, 63])
def test_one_position_that_every_layer_changes(role: int, at: int) -> None:
    change = louder(role, at)
    assert found(host(change, change, change)) == []
    assert found(host(None, change, None)) == ["layers.0", "layers.2"]


def test_a_clamp_that_only_one_layer_meets() -> None:
    def clamp(*three: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q, k, v = three
        return q, k, v.clamp(-3.5, 3.5)

    model = host(clamp, clamp, clamp)
    assert found(model) == BLOCKS
    with torch.no_grad():
        model.layers[1].attend.c.weight *= 4
    assert found(model) == ["layers.0", "layers.2"]


def test_a_layer_that_attends_itself_and_returns_a_tuple() -> None:
    assert found(host(kind=Inline)) == BLOCKS


@pytest.mark.parametrize("batch", [1, 2])
def test_projections_that_read_rows_of_the_whole_batch(batch: int) -> None:
    packs = found(host(flat=True), "qkv_pack@1", batch)
    assert packs == [f"{layer}.attend.qkv" for layer in BLOCKS]


@pytest.mark.parametrize("held", [torch.ones(4), (torch.ones(4), torch.ones(4)), [torch.eye(64)]])
def test_what_else_an_attending_module_holds(held: Any) -> None:
    model = host()
    for layer in model.layers:
        vars(layer.attend)["more"] = held
    assert found(model) == BLOCKS


def test_what_cannot_be_cut_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Given(Layer):
        def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
            sparse = torch.eye(POSITIONS).to_sparse()
            x = x + self.attend(self.first(x), cos, sin, more=sparse)
            return x + self.feed(self.second(x))

    class Wider(Attend):
        def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, more: Any) -> Any:
            return super().forward(x, cos, sin)

    monkeypatch.setattr(f"{__name__}.Attend", Wider)
    assert found(host(kind=Given)) == BLOCKS


def test_inference_mode() -> None:
    with torch.inference_mode():
        assert found(host()) == BLOCKS


def test_tables_that_are_rewritten_after_a_layer() -> None:
    model = host()
    model.after = lambda i, cos: cos.mul_(1.0 + i)
    assert found(model) == BLOCKS


def test_a_host_that_takes_a_forward_away_itself() -> None:
    class Patching(Layer):
        def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
            self.feed.forward = partial(self.feed.forward)
            try:
                return super().forward(x, cos, sin)
            finally:
                del self.feed.forward

    found(host(kind=Patching))


def test_a_scripted_module_is_refused() -> None:
    model = host()
    x = torch.randn(1, POSITIONS, WIDTH)
    model.layers[1].feed = torch.jit.trace(model.layers[1].feed, x)
    with pytest.raises(Refusal, match="TorchScript") as error:
        found(model)
    assert (error.value.reason, error.value.subject) == (Reason.HOST, "layers.1.feed")
