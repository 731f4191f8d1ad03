"""A tiny real host, and the packaged binding with one thing changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from flashrt.binding import bindings_root


@pytest.fixture(scope="session")
def llama() -> LlamaForCausalLM:
    """Two layers, hidden 64, 4 heads over 2 key-value heads, float32."""
    torch.manual_seed(0)
    config = LlamaConfig(
        num_hidden_layers=2,
        hidden_size=64,
        intermediate_size=96,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=128,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


@pytest.fixture
def packaged() -> str:
    """The text of the packaged smollm2 binding."""
    return (bindings_root() / "smollm2.yaml").read_text()


@pytest.fixture
def edit(tmp_path: Path, packaged: str) -> Callable[[str, str], Path]:
    """The packaged binding with the first occurrence of one text replaced."""

    def write(old: str, new: str) -> Path:
        assert old in packaged
        file = tmp_path / "smollm2.yaml"
        file.write_text(packaged.replace(old, new, 1))
        return file

    return write
