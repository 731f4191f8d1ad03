"""Small hosts to walk through the doors with: a gated block, and a causal LM of two layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

WIDTH, HIDDEN = 64, 96


class Gated(nn.Module):
    """A gated feed-forward, SiLU."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., 64] -> [..., 64]``."""
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Net(nn.Module):
    """Two gated blocks with residuals, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Gated(), Gated()])
        self.head = nn.Linear(WIDTH, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[rows, 64] -> [rows, 32]``."""
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


@pytest.fixture
def gated() -> Gated:
    """One block in eval mode."""
    torch.manual_seed(1)
    return Gated().eval().requires_grad_(False)


@pytest.fixture
def net() -> Net:
    """The host in eval mode."""
    torch.manual_seed(0)
    return Net().eval().requires_grad_(False)


@pytest.fixture
def frames() -> list[torch.Tensor]:
    """Five inputs of four rows."""
    torch.manual_seed(2)
    return [torch.randn(4, WIDTH) for _ in range(5)]


@pytest.fixture
def llama() -> Callable[[], Any]:
    """A causal LM of two layers."""

    def make() -> Any:
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=61,
            hidden_size=WIDTH,
            intermediate_size=HIDDEN,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
        )
        return LlamaForCausalLM(config).eval().requires_grad_(False)

    return make
