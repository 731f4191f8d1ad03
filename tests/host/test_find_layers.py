"""Layers that only look like a decoder block, or whose siblings only look like q, k and v."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as f

from flashrt.host.discovery import Discovery, discover
from flashrt.host.discovery.near_miss import DECODER_BLOCK, LINEAR_PROJ, QKV_PACK
from flashrt.spec.reference import load_reference
from flashrt.spec.registry import load
from flashrt_runtime.reason import Reason

T, D, SIZE = 10, 32, 8
ANGLE = torch.outer(torch.arange(T).float(), 1e4 ** (-torch.arange(4) / 4)).repeat(1, 2)[None]
TABLES = ANGLE.cos(), ANGLE.sin()
X = torch.randn(1, T, D, generator=torch.Generator().manual_seed(0))


class Norm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.rand(width) + 0.5), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def halves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat((-high, low), -1) * sin[:, None]


def neighbours(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    c, s = cos[:, None, :, :4], sin[:, None, :, :4]
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)


def last_half(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    few = [t[..., :2].repeat(1, 1, 2) for t in (cos, sin)]
    return torch.cat((x[..., :4], halves(x[..., 4:], *few)), -1)


class Attention(nn.Module):
    def __init__(self, order: str = "qkv", keys: int = 4, **odd: Any) -> None:
        super().__init__()
        for name, heads in (("a", 4), ("b", keys), ("c", keys)):
            self.add_module(name, nn.Linear(D, heads * SIZE, bias=False))
        self.o = nn.Linear(D, D, bias=False)
        self.parts = dict(zip("qkv", (self.a, self.b, self.c), strict=True))
        self.order, self.odd = order, odd
        norm = odd.get("norm")
        self.n, self.m = (norm(SIZE), norm(SIZE)) if norm else (nn.Identity(), nn.Identity())

    def forward(self, x: torch.Tensor, tables: Any) -> torch.Tensor:
        odd = self.odd
        made = {n: self.parts[n](x).unflatten(-1, (-1, SIZE)).transpose(1, 2) for n in self.order}
        q, k, v = self.n(made["q"]), self.m(made["k"]), made["v"]
        turn = odd.get("turn", halves)
        q, k = turn(q, *tables), turn(k, *tables)
        if k.shape[1] != 4:
            again = odd.get("repeat", lambda t, n: t.repeat_interleave(n, 1))
            k, v = again(k, 4 // k.shape[1]), again(v, 4 // v.shape[1])
        q, v = odd.get("query", lambda t: t)(q), odd.get("value", lambda t: t)(v)
        y = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(odd.get("after", lambda t: t)(y).transpose(1, 2).flatten(2))


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.g, self.u, self.d = (
            nn.Linear(*sizes, bias=False) for sizes in ((D, 48), (D, 48), (48, D))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.d(f.silu(self.g(x)) * self.u(x))


class Layer(nn.Module):
    def __init__(self, **odd: Any) -> None:
        super().__init__()
        self.n1, self.n2, self.m = Norm(D), Norm(D), Gated()
        self.a, self.last = Attention(**odd), odd.get("last", lambda t: t)

    def forward(self, x: torch.Tensor, tables: Any) -> torch.Tensor:
        x = x + self.a(self.n1(x), tables)
        return self.last(x + self.m(self.n2(x)))


class Host(nn.Module):
    def __init__(self, **odd: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(**odd)])

    def forward(self, x: torch.Tensor, tables: Any) -> torch.Tensor:
        return self.layers[0](x, tables) + 0


def host(**odd: Any) -> Host:
    torch.manual_seed(1)
    return Host(**odd).eval().requires_grad_(False)


def look(model: nn.Module, x: torch.Tensor = X, tables: Any = TABLES) -> Discovery:
    return discover(model, lambda: model(x, tables))


def said(found: Discovery, structure: str) -> list[tuple[Reason, str]]:
    return [
        (r.because.reason, r.because.detail) for r in found.refusals if r.structure == structure
    ]


@pytest.mark.parametrize(
    "odd", [{}, {"order": "kqv"}, {"order": "qvk"}, {"keys": 2}, {"keys": 1}, {"norm": Norm}]
)
def test_a_block_is_what_the_catalog_reference_computes(odd: dict[str, Any]) -> None:
    model = host(**odd)
    (block,) = look(model).of(DECODER_BLOCK)
    reference = load_reference(load("decoder_block"))
    state = model.state_dict()
    weights = {slot: state[key] for slot, key in block.weights.items()}
    inputs = {"x": X, "cos": TABLES[0], "sin": TABLES[1]}
    made = reference.function(inputs, weights, block.variant)["y"]
    torch.testing.assert_close(made, model.layers[0](X, TABLES), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("order", ["qkv", "kqv", "vqk", "vkq"])
def test_q_k_and_v_are_the_arguments_that_they_reach(order: str) -> None:
    for odd in ({}, {"norm": Norm}, {"turn": neighbours}):
        (pack,) = look(host(order=order, **odd)).of(QKV_PACK)
        assert {role: path[-1] for role, path in pack.members.items()} == {
            "q": "a",
            "k": "b",
            "v": "c",
        }
        assert "".join(pack.members) == order


def write(t: torch.Tensor) -> torch.Tensor:
    t = t.clone()
    t[:, 1] = 0
    return t


ODD: list[tuple[dict[str, Any], str]] = [
    ({"turn": lambda x, _cos, _sin: x}, "turn its q and k"),
    ({"turn": neighbours}, "neighbouring elements"),
    ({"turn": last_half}, "turn its q and k"),
    ({"query": lambda t: t * 2}, "turn its q and k"),
    ({"query": lambda t: write(t.transpose(1, 2)).transpose(1, 2)}, "turn its q and k"),
    ({"value": lambda t: t * 2}, "those that v put out"),
    ({"keys": 2, "repeat": lambda t, n: t.repeat(1, n, 1, 1)}, "those that v put out"),
    ({"after": lambda t: t * 0.5}, "o does not read"),
    ({"last": write}, "what it adds up"),
]


@pytest.mark.parametrize(("odd", "detail"), ODD)
def test_a_layer_that_computes_something_else_is_no_block(odd: dict[str, Any], detail: str) -> None:
    found = look(host(**odd))
    assert found.of(DECODER_BLOCK) == ()
    ((_, why),) = said(found, DECODER_BLOCK)
    assert detail in why


def test_tables_that_turn_nothing_do_not_tell_how_they_turn() -> None:
    flat = torch.ones(1, T, SIZE), torch.zeros(1, T, SIZE)
    found = look(host(turn=neighbours), tables=flat)
    assert found.of(DECODER_BLOCK) == ()
    ((reason, why),) = said(found, DECODER_BLOCK)
    assert reason is Reason.AMBIGUOUS
    assert "turn nothing" in why


@pytest.mark.parametrize("at", ["a", "config"])
def test_a_declared_window_is_refused_before_a_frame_shows_it(at: str) -> None:
    model = host()
    if at == "a":
        model.layers[0].a.sliding_window = 64
    else:
        model.config = {"sliding_window": 64, "max_window_layers": 3}
    found = look(model)
    assert found.of(DECODER_BLOCK) == ()
    assert "a window of 64 tokens" in said(found, DECODER_BLOCK)[0][1]
    assert [n.subject for n in found.notes] == ["layers.0.a.attention_core"]


def test_a_window_that_no_sequence_reaches_or_a_layer_has_not_is_none() -> None:
    for config in (
        {"sliding_window": 64, "max_position_embeddings": 64},
        {"sliding_window": 64, "use_sliding_window": False},
        {"sliding_window": None},
    ):
        model = host()
        model.config = config
        assert len(look(model).of(DECODER_BLOCK)) == 1
    model.config = {"sliding_window": 64, "layer_types": ["full_attention"]}
    model.layers[0].a.layer_idx = 0
    assert len(look(model).of(DECODER_BLOCK)) == 1
    model.config, model.layers[0].a.window_size = {"sliding_window": 64}, (-1, -1)
    found = look(model)
    assert len(found.of(DECODER_BLOCK)) == 1
    assert found.notes == ()


class Three(nn.Module):
    def __init__(self, between: Callable[[torch.Tensor], object] = lambda _x: None) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(16, 16) for _ in range(3))
        self.out, self.between = nn.Linear(16, 16), between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = [self.a(x)]
        self.between(x)
        made += [self.b(x), self.c(x)]
        return f.scaled_dot_product_attention(*(t.unflatten(-1, (2, 8)).mT for t in made))


class Top(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 0


def test_three_siblings_that_never_attend_are_not_named() -> None:
    class Mix(Three):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = torch.sigmoid(self.a(x)) * self.b(x).relu() * self.c(x)
            return self.out(made)

    model = Top(Mix()).eval()
    found = discover(model, lambda: model(torch.randn(2, 6, 16)))
    assert found.of(QKV_PACK) == ()
    assert said(found, QKV_PACK)[0][0] is Reason.AMBIGUOUS
    assert len(found.of(LINEAR_PROJ)) == 4


def unseen_write(x: torch.Tensor) -> None:
    x.data[:, -1] = 0.0


def counted_write(x: torch.Tensor) -> None:
    x[:, -1] = 0.0


@pytest.mark.parametrize("between", [unseen_write, counted_write])
def test_a_write_between_siblings_is_seen_though_torch_does_not_count_it(
    between: Callable[[torch.Tensor], None],
) -> None:
    model = Top(Three(between)).eval()

    def forward() -> None:
        with torch.inference_mode(between is counted_write):
            model(torch.randn(2, 6, 16))

    found = discover(model, forward)
    assert found.of(QKV_PACK) == ()
    assert said(found, QKV_PACK)[0][0] is Reason.SHARED_INPUT
