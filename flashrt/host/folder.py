"""A model folder, looked at before anything in it is loaded."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flashrt.document.canonical import parse_json, read_json
from flashrt.document.problem import InputError
from flashrt_runtime.reason import Reason

_UNSAFE = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
_HEADER_LIMIT = 100 * 1024 * 1024
_INDEX = "model.safetensors.index.json"
_CONVERT = "save it again with model.save_pretrained(FOLDER), which writes safetensors"


def _refuse(path: Path, what: str, do: str = "") -> InputError:
    return InputError(str(path), 1, "$", what, do, reason=Reason.HOST)


def check_safetensors(path: Path) -> None:
    """Refuse a safetensors file that is truncated, overlong or whose header is not one.

    Reads the header only; the bytes of the tensors are not looked at.
    """
    try:
        size = path.stat().st_size
        with open(path, "rb") as handle:
            prefix = handle.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else _HEADER_LIMIT + 1
            header = handle.read(length) if length <= _HEADER_LIMIT else b""
    except OSError as error:
        raise _refuse(path, error.strerror or str(error)) from error
    again = "download or copy the file again"
    if len(prefix) < 8 or (length <= _HEADER_LIMIT and len(header) < length):
        raise _refuse(path, f"the file is truncated: {size} bytes end inside its header", again)
    if length > _HEADER_LIMIT:
        raise _refuse(path, "not a safetensors file: its header length is not plausible", again)
    try:
        entries = json.loads(header)
        ends = [e["data_offsets"][1] for name, e in entries.items() if name != "__metadata__"]
        expected = 8 + length + max(ends, default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise _refuse(path, "the safetensors header is corrupt", again) from error
    if size != expected:
        kind = "truncated" if size < expected else "longer than its header says"
        raise _refuse(path, f"the file is {kind}: {size} bytes, {expected} expected", again)


def check_folder(folder: Path) -> Mapping[str, Any]:
    """The folder's parsed ``config.json``, when the folder is one that may be loaded.

    Raises :class:`InputError` for weights that are not safetensors, a truncated or missing
    shard, a config that is not JSON, and a config that asks to run code from the folder.
    """
    config_path = folder / "config.json"
    if not config_path.is_file():
        raise _refuse(config_path, "no such file, so this is not a model folder")
    config = read_json(config_path)
    if "auto_map" in config:
        do = "use an architecture that transformers itself has"
        raise _refuse(config_path, "auto_map asks to run code that ships with the weights", do)
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        unsafe = sorted(p.name for p in folder.iterdir() if p.suffix in _UNSAFE)
        if unsafe:
            what = f"the weights are {unsafe[0]}, a format that can run code when it is read"
            raise _refuse(folder, what, _CONVERT)
        raise _refuse(folder, "there are no safetensors weights here", _CONVERT)
    index = folder / _INDEX
    if index.is_file() and not (folder / "model.safetensors").is_file():
        _check_index(index)
    for path in weights:
        check_safetensors(path)
    return config


def _check_index(index: Path) -> None:
    table = parse_json(index.read_bytes(), str(index))
    shards = table.get("weight_map") if isinstance(table, dict) else None
    if not isinstance(shards, dict) or not all(isinstance(v, str) for v in shards.values()):
        raise InputError(str(index), 1, "$.weight_map", "an object of file names was expected")
    for name in sorted(set(shards.values())):
        if Path(name).name != name or not (index.parent / name).is_file():
            raise _refuse(index, f"the shard {name!r} is not in the folder", "fetch it as well")
