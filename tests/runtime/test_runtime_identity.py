"""Identity is of all the bytes, names, dtypes and shapes."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from flashrt_runtime.identity import architecture_digest, checkpoint_digest, file_digest
from flashrt_runtime.reason import Reason, Refusal


def base() -> dict[str, torch.Tensor]:
    return {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)}


def test_order_and_memory_layout_do_not_matter() -> None:
    plain = base()
    strided = {"b": plain["b"], "a": plain["a"].t().contiguous().t()}
    assert not strided["a"].is_contiguous()
    assert checkpoint_digest(plain.items()) == checkpoint_digest(strided.items())


@pytest.mark.parametrize("change", ["last element", "name", "dtype", "shape", "missing", "sign"])
def test_every_change_moves_the_digest(change: str) -> None:
    changed = base()
    if change == "last element":
        changed["a"][1, 2] = torch.nextafter(changed["a"][1, 2], torch.tensor(9.0))
    elif change == "name":
        changed["c"] = changed.pop("b")
    elif change == "dtype":
        changed["b"] = changed["b"].view(torch.float16)
    elif change == "shape":
        changed["a"] = changed["a"].reshape(3, 2)
    elif change == "missing":
        del changed["b"]
    else:
        changed["a"][0, 0] = -0.0
    assert checkpoint_digest(changed.items()) != checkpoint_digest(base().items())


def test_empty_and_scalar_tensors_count() -> None:
    nothing = checkpoint_digest([("a", torch.zeros(0, 3))])
    assert nothing.startswith("sha256:")
    assert nothing != checkpoint_digest([("a", torch.zeros(3, 0))])
    assert checkpoint_digest([("a", torch.tensor(1.0))]) != checkpoint_digest([])


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(Refusal) as caught:
        checkpoint_digest([("a", torch.zeros(1)), ("a", torch.zeros(1))])
    assert caught.value.reason is Reason.CONFLICT


@pytest.mark.parametrize("kind", ["sparse", "meta"])
def test_a_tensor_without_dense_bytes_is_refused(kind: str) -> None:
    made = torch.eye(2).to_sparse() if kind == "sparse" else torch.zeros(2, device="meta")
    with pytest.raises(Refusal) as caught:
        checkpoint_digest([("w", made)])
    assert caught.value.reason is Reason.LAYOUT


@pytest.mark.parametrize(
    ("name", "value", "counts"),
    [
        ("hidden_act", "gelu", True),
        ("rms_norm_eps", 1e-3, True),
        ("rope_parameters", {"rope_theta": 1.0, "rope_type": "default"}, True),
        ("_name_or_path", "elsewhere", False),
        ("transformers_version", "0", False),
        ("architectures", ["LlamaForCausalLM"], False),
        ("use_cache", False, False),
        ("_attn_implementation", "eager", False),
    ],
)
def test_a_config_counts_by_what_it_computes(
    llama: Any, name: str, value: Any, counts: bool
) -> None:
    before = architecture_digest(llama)
    setattr(llama.config, name, value)
    assert (architecture_digest(llama) != before) is counts


def test_an_architecture_is_its_modules_classes_at_every_path() -> None:
    shared = torch.nn.ReLU()
    model = torch.nn.Sequential(shared, torch.nn.Identity(), shared)
    before = architecture_digest(model)
    assert architecture_digest(copy.deepcopy(model)) == before
    unshared = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Identity(), torch.nn.ReLU())
    assert architecture_digest(unshared) == before
    model[2] = torch.nn.SiLU()
    assert architecture_digest(model) != before
    unshared[0].forward = torch.nn.functional.silu
    assert architecture_digest(unshared) != before


def test_a_file_is_hashed_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one")
    first = file_digest(path)
    assert file_digest(path) == first
    path.write_bytes(b"two")
    os.utime(path, ns=(1, 1))
    assert file_digest(path) != first
