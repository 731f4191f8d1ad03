"""Identity is of all the bytes, names, dtypes and shapes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from flashrt_runtime.identity import checkpoint_digest, file_digest
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


def test_a_file_is_hashed_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one")
    first = file_digest(path)
    assert file_digest(path) == first
    path.write_bytes(b"two")
    os.utime(path, ns=(1, 1))
    assert file_digest(path) != first
