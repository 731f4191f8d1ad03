"""Calls are looked at whole while they run, and what differs at one position is told apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from flashrt.host.discovery.attention.reach import reaches

POSITIONS = 64


class Rows(nn.Module):
    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.ModuleList(inner)

    def forward(self, x: torch.Tensor, tables: Any) -> torch.Tensor:
        for one in self.inner:
            x = one(x, tables)
        return x


def erased(turn: Callable[..., torch.Tensor], at: int) -> Callable[..., torch.Tensor]:
    """The turn, and nothing left of one position."""

    def odd(x: torch.Tensor, *tables: torch.Tensor) -> torch.Tensor:
        made = turn(x, *tables).clone()
        made[:, at] = 0
        return made

    return odd


@pytest.mark.parametrize(("at", "odd"), [(0, []), (0, [1]), (17, [1]), (63, [0])])
def test_one_call_that_does_more_is_told_from_those_beside_it(
    at: int, odd: list[int], plain: Any, tables: Any, looked: Any
) -> None:
    hosts = [plain() for _ in range(3)]
    for i in odd:
        hosts[i].turn = erased(hosts[i].turn, at)
    model, x = Rows(*hosts), torch.randn(1, POSITIONS, 12)
    given = tables(POSITIONS)
    _, misses, tap = looked(model, lambda: model(x, given))
    said = {m.path: m.because.detail for m in misses if m.structure == "qk_norm_rope@1"}
    halves = [path for path, what in said.items() if "by halves without a norm" in what]
    assert halves == [f"inner.{i}" for i in range(3) if i not in odd]
    for i, site in enumerate(tap.sites):
        (v,) = (c.output.tensor for c in site.children if c.module is hosts[i].x)
        # the odd one is none of it, so nothing is told of all of it
        assert reaches(site.attended[0], "value", v) is (i not in odd)
