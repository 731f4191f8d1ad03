"""Identity of a checkpoint and of a file: digests over all of the bytes, never over a prefix."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

_BLOCK = 8 * 1024 * 1024


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def _update(state: Any, tensor: torch.Tensor, name: str) -> None:
    import torch

    if tensor.layout is not torch.strided or tensor.is_meta:
        raise Refusal(
            Reason.LAYOUT,
            f"a {tensor.layout} tensor on {tensor.device} has no bytes to identify it by",
            subject=name,
            do="load the checkpoint as dense tensors",
        )
    dense = tensor.detach().cpu().contiguous()
    size = dense.numel() * dense.element_size()
    header = f"{name}\0{dtype_name(dense.dtype)}\0{list(dense.shape)}\0{size}\0"
    state.update(header.encode())
    if size:
        view = (ctypes.c_ubyte * size).from_address(dense.data_ptr())
        state.update(memoryview(view))


def checkpoint_digest(named_tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """``sha256:<hex>`` over every tensor's name, dtype, shape and bytes, sorted by name.

    Tied tensors count under each of their names. Bytes are hashed where they lie; only a tensor
    that is not contiguous, or not on the CPU, is copied. Raises :class:`Refusal` for a name given
    twice (CONFLICT) or a tensor without dense bytes (LAYOUT).
    """
    state = hashlib.sha256()
    before: str | None = None
    for name, tensor in sorted(named_tensors, key=lambda item: item[0]):
        if name == before:
            raise Refusal(Reason.CONFLICT, "two tensors have this name", subject=name)
        _update(state, tensor, name)
        before = name
    return "sha256:" + state.hexdigest()


@lru_cache(maxsize=1024)
def _file_digest(path: str, device: int, inode: int, size: int, mtime_ns: int) -> str:
    state = hashlib.sha256()
    with open(path, "rb") as handle:
        while block := handle.read(_BLOCK):
            state.update(block)
    return "sha256:" + state.hexdigest()


def file_digest(path: str | Path) -> str:
    """``sha256:<hex>`` of a file's bytes, remembered in this process by (inode, size, mtime).

    Raises ``OSError`` when the file cannot be read.
    """
    found = os.stat(path)
    return _file_digest(
        os.fspath(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
    )
