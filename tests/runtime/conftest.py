"""Tiny hosts, tiny impls and tiny releases for the runtime's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from flashrt_runtime.contract import BindRequest, BoundSeam, Seam
from flashrt_runtime.guard import FormContract, Place
from flashrt_runtime.swap import Swap


@torch.library.custom_op("flashrt::test_double", mutates_args=())
def test_double(x: torch.Tensor, seam: str) -> torch.Tensor:
    """Twice ``x``."""
    return x * 2


@test_double.register_fake
def _(x: torch.Tensor, seam: str) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("flashrt::test_ffn", mutates_args=())
def test_ffn(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, seam: str
) -> torch.Tensor:
    """The gated feed-forward, in the host's own arithmetic."""
    hidden = nn.functional.silu(nn.functional.linear(x, gate)) * nn.functional.linear(x, up)
    return nn.functional.linear(hidden, down)


@test_ffn.register_fake
def _(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, seam: str
) -> torch.Tensor:
    return torch.empty_like(x)


class Double(nn.Module):
    """An implementation that is not the host's arithmetic, so that a test sees which one ran."""

    def __init__(self, seam: str) -> None:
        super().__init__()
        self.seam = seam

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Twice ``x``, by the operator."""
        return torch.ops.flashrt.test_double(x, self.seam)


class FeedForward(nn.Module):
    """The feed-forward by the operator, from the host's own weights."""

    def __init__(self, request: BindRequest) -> None:
        super().__init__()
        self.seam = request.seam.id
        for slot in ("gate", "up", "down"):
            self.register_buffer(slot, request.weights[slot], persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., D] -> [..., D]``."""
        return torch.ops.flashrt.test_ffn(x, self.gate, self.up, self.down, self.seam)


class Net(nn.Module):
    """Two linears of width 4."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., 4] -> [..., 4]``."""
        return self.second(self.first(x))


@pytest.fixture
def net() -> Net:
    """A host in eval mode."""
    torch.manual_seed(0)
    return Net().eval().requires_grad_(False)


@pytest.fixture
def swap_of() -> Callable[..., Swap]:
    """``swap_of(path, rows=(1, 2), place=…, body=…)``: a swap of one linear of width 4."""

    def make(
        path: str = "first",
        rows: tuple[int, int | None] = (1, 2),
        place: Place = Place.ANYWHERE,
        body: nn.Module | None = None,
        **other: Any,
    ) -> Swap:
        seam = Seam(f"{path}.seam", "linear_proj@1", {"self": path}, {}, {"K": 4}, {})
        bound = BoundSeam({"self": body or Double(seam.id)}, "flashrt::test_double", 0)
        given = {"device": torch.device("cpu"), "dtype": torch.float32, "width": 4} | other
        return Swap(seam, bound, FormContract(rows=rows, place=place, **given), "fake", "decode")

    return make


@pytest.fixture
def ffn_binder() -> Callable[..., BoundSeam]:
    """A binder that takes any impl record and binds the feed-forward operator."""

    def bind(impl: Any, request: BindRequest) -> BoundSeam:
        return BoundSeam({"self": FeedForward(request)}, "flashrt::test_ffn", 0)

    return bind


def tiny_llama(layers: int = 1) -> nn.Module:
    """A causal LM with random weights that says more than one token."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.mul_(3)
    return model


@pytest.fixture
def llama() -> nn.Module:
    """A fresh tiny Llama of one layer."""
    return tiny_llama()
