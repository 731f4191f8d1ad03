"""Tiny hosts: transformers models of two layers with a word-level tokenizer, saved as folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

CI_VARIABLES = ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY")


@pytest.fixture(scope="session", autouse=True)
def not_in_ci() -> Iterator[None]:
    """Commands print for a person unless a test says otherwise, on a CI machine as well."""
    with pytest.MonkeyPatch.context() as patch:
        for name in CI_VARIABLES:
            patch.delenv(name, raising=False)
        yield


WORDS = [f"w{i}" for i in range(90)]


def build_tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["<unk>", "<s>", "</s>", *WORDS])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>")


def build_llama(**changes: Any) -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    settings = {
        "vocab_size": 128,
        "rms_norm_eps": 1e-5,  # the epsilon that the packaged binding of the family says
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
    }
    return LlamaForCausalLM(LlamaConfig(**(settings | changes))).eval()


@pytest.fixture
def llama() -> Callable[..., torch.nn.Module]:
    return build_llama


@pytest.fixture
def tokenizer() -> Any:
    return build_tokenizer()


@pytest.fixture
def host_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny-llama"
    build_llama().save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def text_folder(tmp_path: Path) -> Path:
    """Eight documents in two categories, 200 words each, all different."""
    folder = tmp_path / "texts"
    for category in ("prose", "news"):
        for i in range(4):
            path = folder / category / f"d{i}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            step = i + 1 if category == "prose" else i + 7
            path.write_text(" ".join(WORDS[(step * k * k + k) % 90] for k in range(200)))
    return folder
