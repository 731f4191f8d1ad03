"""JSON from strangers, by the standard library: duplicate keys, NaN and depth refused."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from flashrt_runtime.reason import Reason, Refusal

MAX_BYTES = 64 * 1024 * 1024


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"duplicate key {key!r}")
        seen[key] = value
    return seen


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def parse(data: bytes, source: str) -> Any:
    """A JSON value. Raises :class:`Refusal` (SCHEMA) that names ``source``."""
    if len(data) > MAX_BYTES:
        what = f"{len(data)} bytes is over the limit of {MAX_BYTES}"
        raise Refusal(Reason.SCHEMA, what, subject=source)
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_constant,
            parse_float=_finite,
        )
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refusal(Reason.SCHEMA, f"not JSON: {what}", subject=source) from error


def parse_object(data: bytes, source: str) -> dict[str, Any]:
    """A JSON object. Raises :class:`Refusal` (SCHEMA) for anything else."""
    value = parse(data, source)
    if not isinstance(value, dict):
        raise Refusal(Reason.SCHEMA, "an object was expected", subject=source)
    return value


def take(record: Any, name: str, kind: type | tuple[type, ...], source: str) -> Any:
    """``record[name]``, which must be of ``kind`` (a bool is no int). Raises SCHEMA otherwise."""
    if not isinstance(record, dict) or name not in record:
        raise Refusal(Reason.SCHEMA, f"the field {name!r} is missing", subject=source)
    value = record[name]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kind) or (isinstance(value, bool) and bool not in kinds):
        what = f"the field {name!r} is a {type(value).__name__}"
        raise Refusal(Reason.SCHEMA, what, subject=source)
    return value


def sha256(data: bytes) -> str:
    """``sha256:<hex>`` of the bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def is_digest(text: Any) -> bool:
    """Whether ``text`` reads ``sha256:`` and 64 lower-case hex digits."""
    if not isinstance(text, str) or not text.startswith("sha256:") or len(text) != 71:
        return False
    return all(c in "0123456789abcdef" for c in text[7:])


def _no_floats(value: Any) -> None:
    if isinstance(value, float):
        raise ValueError("a number with a fraction")
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, (dict, list, float)):
            _no_floats(part)


def canonical_digest(record: dict[str, Any], source: str) -> str:
    """Digest of a cell's RFC 8785 bytes. A cell holds no number with a fraction, which is the one
    part of RFC 8785 that the standard library does not write; SCHEMA when it does."""
    try:
        _no_floats(record)
        ordered = _ordered(record)
        text = json.dumps(ordered, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return sha256(text.encode("utf-8"))
    except (ValueError, UnicodeEncodeError) as error:
        raise Refusal(Reason.SCHEMA, f"not canonical: {error}", subject=source) from error


def _ordered(value: Any) -> Any:
    # RFC 8785 orders keys by UTF-16 code units.
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return {key: _ordered(value[key]) for key in keys}
    if isinstance(value, list):
        return [_ordered(part) for part in value]
    return value
