"""Canonical bytes and digests of JSON artefacts (RFC 8785), and strict JSON parsing."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, cast

import rfc8785

from flashrt.document.problem import InputError
from flashrt.document.read import read_regular

MAX_BYTES = 256 * 1024 * 1024


def canonical_bytes(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value. Raises ``ValueError`` on NaN, infinity or a non-JSON type."""
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as error:
        raise ValueError(f"not canonical JSON: {error}") from error


def sha256(data: bytes) -> str:
    """``sha256:<hex>`` of the bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def digest_of(body: dict[str, Any]) -> str:
    """Digest of an artefact: its canonical bytes without the ``digest`` field."""
    return sha256(canonical_bytes({k: v for k, v in body.items() if k != "digest"}))


def seal(body: dict[str, Any]) -> dict[str, Any]:
    """The body with its ``digest`` field set."""
    return {**body, "digest": digest_of(body)}


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"duplicate key {key!r}")
        seen[key] = value
    return seen


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _encodable(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        what = f"half a character ({error.object[error.start]!a}, a lone surrogate)"
        raise ValueError(what) from error


def parse_json(data: bytes, source: str) -> Any:
    """A JSON value from untrusted bytes: duplicate keys, NaN, infinity and deep nesting refused,
    and half a character (a lone surrogate).

    ``source`` names the file in the :class:`InputError`.
    """
    if len(data) > MAX_BYTES:
        what = f"{len(data)} bytes is over the limit of {MAX_BYTES}"
        raise InputError(source, 1, "$", what, "split the file")
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_no_duplicates,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
        if b"\\u" in data:  # the only way to half a character
            _encodable(value)
        return value
    except json.JSONDecodeError as error:
        do = "repair the line or the one above"
        raise InputError(source, error.lineno, "$", f"not JSON: {error.msg}", do) from error
    except UnicodeDecodeError as error:
        what = f"not UTF-8 at byte {error.start}"
        raise InputError(source, 1, "$", what, "save it as UTF-8") from error
    except RecursionError as error:
        raise InputError(source, 1, "$", "nested too deeply", "make it flatter") from error
    except ValueError as error:
        do = "keep one of each key, and finite numbers of usual length"
        raise InputError(source, 1, "$", str(error), do) from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises :class:`InputError` for anything else."""
    return object_of(read_regular(path, MAX_BYTES), str(path))


def object_of(data: bytes, source: str) -> dict[str, Any]:
    """As :func:`read_json`, from bytes; ``source`` names the file in messages."""
    value = parse_json(data, source)
    if not isinstance(value, dict):
        raise InputError(source, 1, "$", "an object was expected", "write {…}")
    return cast(dict[str, Any], value)
