"""What one frame does not tell of q and k: an eps that its rows hide, tables that turn nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from flashrt.host.discovery.attention.result import QK_NORM_ROPE
from flashrt_runtime.reason import Reason


class Given(nn.Module):
    """RMSNorm of 1e-5 that says so as a number of its own, in a buffer, or nowhere."""

    def __init__(self, width: int, says: str, eps: float) -> None:
        super().__init__()
        self.weight, self.real = nn.Parameter(torch.rand(width) + 0.5), str(eps)
        if says == "buffer":
            self.register_buffer("tiny", torch.tensor(eps))
        if says == "lie":
            self.tiny = 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.real == "1e-12" and float(x.abs().max()) < 0.1:
            raise ValueError("too quiet")
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + float(self.real)) * self.weight


@pytest.mark.parametrize(
    "case",
    [
        ("buffer", 1e-5, "1e-05"),
        ("lie", 1e-5, "1e-05"),
        ("nothing", 1e-5, "1e-05"),
        ("nothing", 3e-6, None),
        ("nothing", 1e-12, None),
    ],
)
def test_eps_is_told_by_rows_so_small_that_it_decides(
    plain: Any, tables: Any, looked: Any, case: tuple[str, float, str | None]
) -> None:
    says, eps, want = case
    model = plain(norm=lambda _heads: Given(8, says, eps))
    x = 50 * torch.randn(1, 5, 12)
    seams, misses, _ = looked(model, lambda: model(x, tables()))
    told = [s.variant["eps"] for s in seams if s.structure == QK_NORM_ROPE]
    assert told == ([want] if want else [])
    if want is None:
        why = next(m.because for m in misses if m.structure == QK_NORM_ROPE)
        assert why.reason is Reason.AMBIGUOUS
        assert "eps" in why.detail


def test_one_token_at_position_zero_does_not_tell_halves_from_neighbours(
    plain: Any, looked: Any
) -> None:
    model = plain("neighbours", norm=lambda _heads: Given(8, "nothing", 1e-5))
    x, still = torch.randn(1, 1, 12), (torch.ones(1, 1, 8), torch.zeros(1, 1, 8))
    seams, misses, _ = looked(model, lambda: model(x, still))
    assert QK_NORM_ROPE not in {s.structure for s in seams}
    why = next(m.because for m in misses if m.structure == QK_NORM_ROPE)
    assert why.reason is Reason.AMBIGUOUS
