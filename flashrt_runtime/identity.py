"""Identity of a checkpoint, of what computes with it, and of a file: digests over all of it."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

_BLOCK = 8 * 1024 * 1024
# What says where a config was read, by which software and how the host is called, but nothing of
# what it computes. The dtype is a fact by itself; the architecture's name is its class below.
_VOLATILE = (
    "_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache",
)  # fmt: skip
_VOLATILE_PREFIX = "_attn_implementation"


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


def _lasting(value: Any) -> Any:
    """A config's record without what differs between two loads of one model."""
    if isinstance(value, dict):
        return {
            key: _lasting(item)
            for key, item in value.items()
            if key not in _VOLATILE and not str(key).startswith(_VOLATILE_PREFIX)
        }
    if isinstance(value, list | tuple):
        return [_lasting(item) for item in value]
    return value


def _computes(module: torch.nn.Module) -> str:
    """The class that computes, marked when this instance's ``forward`` is not the class's."""
    # A seat keeps its host module here; asked by name, so that nothing of torch is imported.
    host = module.__dict__.get("seat_host", module)
    kind = type(host)
    patched = " with its own forward" if "forward" in host.__dict__ else ""
    return f"{kind.__module__}.{kind.__qualname__}{patched}"


def architecture_digest(model: torch.nn.Module) -> str:
    """``sha256:<hex>`` over the config and the class of every module: what the weights do.

    Two models of one checkpoint differ here when a setting of their configs does (such as the
    activation), when a module is of another class, or when one had its ``forward`` replaced. A
    module counts under each of its paths, and an attached seat as the host module it holds.
    A class whose own methods were replaced in place is not noticed.
    """
    config: Any = getattr(model, "config", None)
    read = getattr(config, "to_dict", None)
    record = {
        "config": _lasting(read()) if callable(read) else None,
        "modules": sorted(
            [path, _computes(module)]
            for path, module in model.named_modules(remove_duplicate=False)
        ),
    }
    text = json.dumps(record, sort_keys=True, default=str)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


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
