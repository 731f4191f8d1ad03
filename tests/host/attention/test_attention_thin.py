"""Of a call of which all was told while it ran, a few positions are kept, and they say the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

POSITIONS = 64
KEPT = [0, 9, 18, 27, 36, 45, 54, 63]


class Layers(nn.Module):
    def __init__(self, *inner: nn.Module, **named: Any) -> None:
        super().__init__()
        self.inner, self.named = nn.ModuleList(inner), named
        self.read: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor, tables: Any) -> torch.Tensor:
        for one in self.inner:
            self.read.append(x)
            x = x + one(x, tables, **self.named)
        return x


def cuts(
    looked: Any, model: Layers, tables: Any, positions: int = POSITIONS, batch: int = 1
) -> Any:
    x, given = torch.randn(batch, positions, 12), tables(positions)
    seams, _, tap = looked(model, lambda: model(x, given))
    return [site.cut for site in tap.sites], seams, tap


def test_calls_are_cut_and_say_the_same(plain: Any, tables: Any, looked: Any) -> None:
    model = Layers(*[plain() for _ in range(3)])
    cut, seams, tap = cuts(looked, model, tables)
    assert cut == [POSITIONS] * 3
    assert {s.id for s in seams} == {f"inner.{i}.attention_core" for i in range(3)}
    for site, read in zip(tap.sites, model.read, strict=True):
        call = site.attended[0].call
        assert {call.query.shape[2], call.key.shape[2], call.value.shape[2]} == {len(KEPT)}
        assert site.given["tables"][0].shape == (1, len(KEPT), 8)
        torch.testing.assert_close(site.given["hidden"], read[:, KEPT])
        held = [t for child in site.children for t in (child.input.tensor, child.output.tensor)]
        assert all(len(KEPT) in t.shape and POSITIONS not in t.shape for t in held)
        # one tensor stays one, and what it was made of makes it still
        assert site.children[0].input.tensor is site.given["hidden"]
        for child in site.children:
            made = child.module(child.input.tensor)
            torch.testing.assert_close(made, child.output.tensor)


@pytest.mark.parametrize("norm", [lambda _: nn.RMSNorm(8, eps=1e-6), lambda _: nn.GELU()])
def test_a_call_with_more_than_projections_in_it_is_kept_whole(
    norm: Any, plain: Any, tables: Any, looked: Any
) -> None:
    cut, _, _ = cuts(looked, Layers(plain(norm=norm), plain(norm=norm)), tables)
    assert cut == [0, 0]


def test_what_all_are_given_is_cut_once(plain: Any, tables: Any, looked: Any) -> None:
    _, _, tap = cuts(looked, Layers(*[plain() for _ in range(3)]), tables)
    first, second = (site.given["tables"][0] for site in tap.sites[1:])
    assert first is second


@pytest.mark.parametrize("positions", [5, 32])
def test_a_short_call_is_kept_whole(positions: int, plain: Any, tables: Any, looked: Any) -> None:
    cut, _, _ = cuts(looked, Layers(plain(), plain()), tables, positions)
    assert cut == [0, 0]


def test_a_call_that_is_not_rotated_by_halves_is_kept_whole(
    plain: Any, tables: Any, looked: Any
) -> None:
    cut, _, _ = cuts(looked, Layers(plain(), plain("neighbours"), plain(keys=1)), tables)
    assert cut == [POSITIONS, 0, POSITIONS]


def test_a_call_with_a_mask_is_kept_whole(plain: Any, tables: Any, looked: Any) -> None:
    mask = torch.zeros(1, 1, POSITIONS, POSITIONS)
    cut, _, _ = cuts(looked, Layers(plain(), plain(), attn_mask=mask), tables)
    assert cut == [0, 0]


def test_a_call_whose_positions_are_not_told_from_another_dim_is_kept_whole(
    plain: Any, tables: Any, looked: Any
) -> None:
    cut, _, _ = cuts(looked, Layers(plain(), plain()), tables, batch=POSITIONS)
    assert cut == [0, 0]


class Writing(nn.Linear):
    """Writes to what the call around it attended with."""

    last: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Writing.last.mul_(2.0)
        return super().forward(x)


def turning(turn: Any) -> Any:
    def turned(x: torch.Tensor, *tables: torch.Tensor) -> torch.Tensor:
        Writing.last = turn(x, *tables)
        return Writing.last

    return turned


def test_a_call_that_wrote_to_what_it_attended_with_is_kept_whole(
    plain: Any, tables: Any, looked: Any
) -> None:
    hosts = [plain() for _ in range(2)]
    turn = turning(hosts[0].turn)
    for host in hosts:
        host.w, host.turn = Writing(32, 12), turn
    x, given = torch.randn(1, POSITIONS, 12), tables(POSITIONS)
    model = Layers(*hosts).eval()
    _, misses, tap = looked(model, lambda: model(x, given))
    assert [site.cut for site in tap.sites] == [0, 0]
    said = [m.path for m in misses if "written in place" in m.because.detail]
    assert said == ["inner.0", "inner.1"]
