"""The text inside a calibration table."""

from __future__ import annotations

from typing import Any

from flashrt.document.canonical import parse_json
from flashrt.document.problem import InputError

_LENGTH = 8  # safetensors: a little-endian u64 with the header's length in bytes


def table_text(data: bytes, source: str) -> dict[str, Any]:
    """The header of a safetensors file: tensor names and metadata, all the text it has.

    Raises :class:`InputError` when the bytes are not safetensors.
    """
    length = int.from_bytes(data[:_LENGTH], "little")
    if len(data) < _LENGTH or length > len(data) - _LENGTH:
        raise InputError(source, 1, "$", "not a safetensors file")
    header = parse_json(data[_LENGTH : _LENGTH + length], source)
    if not isinstance(header, dict):
        raise InputError(source, 1, "$", "not a safetensors file")
    return header
