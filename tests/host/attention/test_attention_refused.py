"""Every near miss of the attention finders, each on a tree that has just that flaw."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as f

from flashrt_runtime.reason import Reason

HIDDEN = torch.randn(1, 5, 12, generator=torch.Generator().manual_seed(2))


class Mean(nn.Module):
    """RMSNorm whose groups are not heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, len(self.weight))
        return (rows * (rows.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * self.weight).view(
            x.shape
        )


def only(looked: Any, model: nn.Module, structure: str, *args: Any, **named: Any) -> Any:
    seams, missed, _ = looked(model, lambda: model(*args, **named))
    assert not [s for s in seams if s.structure == structure]
    return next(m.because for m in missed if m.structure == structure)


def test_a_norm_of_another_width(plain: Any, tables: Any, looked: Any) -> None:
    model = plain(norm=lambda heads: Mean(4))
    found = only(looked, model, "qk_norm_rope@1", HIDDEN, tables())
    assert found.reason is Reason.SHAPE
    assert "spans 4 elements" in found.detail


def test_rotations_that_are_no_rotate_half(plain: Any, tables: Any, looked: Any) -> None:
    def rms(_heads: int) -> nn.Module:
        return nn.RMSNorm(8)

    model = plain(norm=rms, turn="neighbours")
    found = only(looked, model, "qk_norm_rope@1", HIDDEN, tables())
    assert "neighbouring" in found.detail
    model = plain(norm=rms)
    found = only(looked, model, "qk_norm_rope@1", HIDDEN)
    assert "not rotated" in found.detail
    model.turn = lambda x, cos, sin: x * cos[:, :, None]
    found = only(looked, model, "qk_norm_rope@1", HIDDEN, tables())
    assert "no two tables" in found.detail
    found = only(looked, plain(turn="neighbours"), "qk_norm_rope@1", HIDDEN, tables())
    assert "without a norm" in found.detail


def test_q_and_k_that_are_normed_in_different_ways(plain: Any, tables: Any, looked: Any) -> None:
    model = plain(norm=lambda heads: nn.RMSNorm(8, eps=1e-6 if heads == 4 else 1e-2))
    assert "different ways" in only(looked, model, "qk_norm_rope@1", HIDDEN, tables()).detail
    model = plain(norm=lambda heads: nn.RMSNorm(8) if heads == 4 else nn.Identity())
    assert "its k is not" in only(looked, model, "qk_norm_rope@1", HIDDEN, tables()).detail


def test_a_head_dim_that_is_odd_or_above_256(plain: Any, tables: Any, looked: Any) -> None:
    model = plain(size=7, norm=lambda heads: nn.RMSNorm(7))
    found = only(looked, model, "qk_norm_rope@1", HIDDEN, tables(width=6))
    assert found.reason is Reason.SHAPE
    assert "7 is not even" in found.detail
    model = plain(size=258, norm=lambda heads: nn.RMSNorm(258))
    found = only(looked, model, "qk_norm_rope@1", HIDDEN, tables(width=258))
    assert "258 is not even and at most 256" in found.detail


@pytest.mark.parametrize(
    ("mask", "says"),
    [
        (torch.tensor([1, 0, 1, 0, 1]).bool().expand(5, 5), "3 ranges"),
        (torch.ones(5, 5).tril(1).bool(), "differ between queries"),
        (torch.stack((torch.ones(5, 5), torch.eye(5)), 0).bool()[:, None], "between batch rows"),
        (torch.full((5, 5), -1.5), "bias"),
    ],
)
def test_masks_that_no_structure_says(mask: Any, says: str, plain: Any, looked: Any) -> None:
    hidden = HIDDEN.expand(mask.shape[0] if mask.dim() == 4 else 1, 5, 12)
    found = only(looked, plain(), "attention_core@1", hidden, attn_mask=mask)
    assert found.reason is Reason.LAYOUT
    assert says in found.detail


def test_dropout_and_a_context_parallel_layout(plain: Any, looked: Any) -> None:
    found = only(looked, plain(), "attention_core@1", HIDDEN, dropout_p=0.1)
    assert found.reason is Reason.TRAINING
    model = plain()
    model.cp_size = 2
    found = only(looked, model, "attention_core@1", HIDDEN)
    assert "context parallelism (cp_size)" in found.detail
    model.cp_size = 1
    assert [s.structure for s in looked(model, lambda: model(HIDDEN))[0]] == ["attention_core@1"]


def test_a_causal_mask_over_more_keys_than_queries(looked: Any) -> None:
    class Longer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = x[None]
            return f.scaled_dot_product_attention(q[:, :, :3], q, q, is_causal=True)

    found = only(looked, Longer().eval(), "attention_core@1", HIDDEN)
    assert "not at the last" in found.detail


def test_tensors_that_are_written_after_they_attended(looked: Any) -> None:
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = x[None] + 0
            out = f.scaled_dot_product_attention(q, q, q)
            q.zero_()
            return out

    found = only(looked, Writes().eval(), "attention_core@1", HIDDEN)
    assert "written in place" in found.detail


class Packed(nn.Module):
    """A vision-like pack: one projection for q, k and v, tokens without a batch."""

    def __init__(self, heads: int = 2, size: int = 6, keys: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.sizes = heads, keys, size
        self.pack = nn.Linear(12, (heads + 2 * keys) * size)
        self.out = nn.Linear(heads * size, 12)

    def forward(self, x: torch.Tensor, tables: Any) -> torch.Tensor:
        heads, keys, size = self.sizes
        parts = self.pack(x).unflatten(-1, (-1, size)).split((heads, keys, keys), dim=1)
        turned = []
        for part in parts[:2]:
            cos, sin = (t[:, None].float() for t in tables)
            rotated, rest = part[..., : cos.shape[-1]], part[..., cos.shape[-1] :]
            low, high = rotated.chunk(2, dim=-1)
            rotated = rotated * cos + torch.cat((-high, low), -1) * sin
            turned.append(torch.cat((rotated, rest), -1))
        q, k, v = (t.transpose(0, 1)[None] for t in (*turned, parts[2]))
        y = f.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.out(y[0].transpose(0, 1).flatten(1))


def packed_call(width: int = 6, tokens: int = 7) -> tuple[torch.Tensor, Any]:
    angle = torch.rand(tokens, width // 2).repeat(1, 2)
    return torch.randn(tokens, 12), (angle.cos(), angle.sin())


def test_a_pack_that_is_the_structures(looked: Any) -> None:
    model = Packed().eval().requires_grad_(False)
    given = packed_call()
    seams, _, tap = looked(model, lambda: model(*given))
    seam = next(s for s in seams if s.structure == "qkv_rope@1")
    assert seam.dims == {"H": 2, "Dh": 6}
    assert seam.weights == {"bias": "pack.bias"}
    assert (tap.plans[seam.id].out, tap.plans[seam.id].capacity) == ("out", 7)


@pytest.mark.parametrize(
    ("sizes", "width", "reason", "says"),
    [
        ({"size": 258}, 258, Reason.SHAPE, "258"),
        ({"size": 5}, 4, Reason.SHAPE, "5 is not even"),
        ({"heads": 4}, 6, Reason.LAYOUT, "unequal heads"),
        ({}, 4, Reason.SHAPE, "rotates 4 of a head's 6"),
    ],
)
def test_packs_that_are_not(sizes: Any, width: int, reason: Any, says: str, looked: Any) -> None:
    model = Packed(**sizes).eval().requires_grad_(False)
    found = only(looked, model, "qkv_rope@1", *packed_call(width))
    assert found.reason is reason
    assert says in found.detail


def test_a_table_of_low_precision_and_another_number_of_tokens(looked: Any) -> None:
    model = Packed().eval().requires_grad_(False)
    x, tables = packed_call()
    found = only(looked, model, "qkv_rope@1", x, tuple(t.bfloat16() for t in tables))
    assert found.reason is Reason.DTYPE

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self) -> Any:
            return self.inner(*packed_call()), self.inner(*packed_call(tokens=9))

    found = only(looked, Twice().eval(), "qkv_rope@1")
    assert found.reason is Reason.SHAPE
    assert "[7, 9] tokens" in found.detail
