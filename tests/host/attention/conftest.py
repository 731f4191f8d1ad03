"""One forward, tapped, and what the attention finders make of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from flashrt.host.discovery.attention import AttentionTap, find
from flashrt.host.discovery.trace import trace
from flashrt.host.tiny import build


def look(model: nn.Module, forward: Callable[[], object]) -> tuple[Any, Any, Any]:
    tap = AttentionTap(model)
    first = trace(model, forward, modes=(tap,))
    seams, misses = find(model, first, tap)
    return seams, misses, tap


@cache
def _tiny(name: str) -> tuple[Any, Any, Any]:
    host = build(name)
    return look(host.model, host.forward)


@pytest.fixture(scope="session")
def looked() -> Callable[..., tuple[Any, Any, Any]]:
    """``looked(model, forward)``: seams, near misses and the tap of discovery's one forward."""
    return look


@pytest.fixture(scope="session")
def tiny() -> Callable[[str], tuple[Any, Any, Any]]:
    """``tiny(name)``: the same of a tiny host."""
    return _tiny


class Plain(nn.Module):
    """Self-attention under names that say nothing. ``norm``: a module each for q and k."""

    def __init__(self, heads: int = 4, keys: int = 2, size: int = 8, norm: Any = None) -> None:
        super().__init__()
        self.sizes = heads, keys, size
        self.z = nn.Linear(12, heads * size)
        self.y = nn.Linear(12, keys * size)
        self.x = nn.Linear(12, keys * size)
        self.w = nn.Linear(heads * size, 12)
        self.n1, self.n2 = (norm(heads), norm(keys)) if norm else (nn.Identity(), nn.Identity())
        self.turn: Any = halves

    def split(self, x: torch.Tensor, norm: nn.Module, heads: int) -> torch.Tensor:
        shape = (*x.shape[:2], heads, self.sizes[2])
        wide = next((p.shape[0] for p in norm.parameters()), 0) == x.shape[-1]
        return norm(x).view(shape) if wide else norm(x.view(shape))

    def forward(self, hidden: torch.Tensor, tables: Any = None, **named: Any) -> torch.Tensor:
        heads, keys, _ = self.sizes
        q = self.split(self.z(hidden), self.n1, heads)
        k = self.split(self.y(hidden), self.n2, keys)
        v = self.x(hidden).view(k.shape)
        if tables is not None:
            q, k = self.turn(q, *tables), self.turn(k, *tables)
        parts = [t.transpose(1, 2) for t in (q, k, v)]
        out = nn.functional.scaled_dot_product_attention(
            *parts, is_causal=not named, enable_gqa=True, **named
        )
        return self.w(out.transpose(1, 2).flatten(2))


def halves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    width = cos.shape[-1]
    part, rest = x[..., :width], x[..., width:]
    low, high = part.chunk(2, dim=-1)
    turned = part * cos[:, :, None] + torch.cat((-high, low), -1) * sin[:, :, None]
    return torch.cat((turned, rest), dim=-1)


def neighbours(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = cos.shape[-1] // 2
    c, s = cos[:, :, None, :half], sin[:, :, None, :half]
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * c - b * s, a * s + b * c), dim=-1).flatten(-2)


@pytest.fixture
def plain() -> Callable[..., Plain]:
    """``plain(turn="halves", …)``: self-attention in evaluation mode, seeded."""

    def make(turn: str = "halves", **named: Any) -> Plain:
        torch.manual_seed(0)
        host = Plain(**named).eval().requires_grad_(False)
        host.turn = {"halves": halves, "neighbours": neighbours}[turn]
        return host

    return make


@pytest.fixture
def tables() -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """``tables(positions, width)``: cos and sin, [1, positions, width], halves repeated."""

    def make(positions: int = 5, width: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(1)
        angle = torch.rand(1, positions, width // 2).repeat(1, 1, 2)
        return angle.cos(), angle.sin()

    return make
