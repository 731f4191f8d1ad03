"""Typed reads from evidence that anybody may have written. A wrong value is named by its path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, TypeVar

T = TypeVar("T")
LARGEST = 2**53  # the largest integer that canonical JSON carries exactly


class Malformed(Exception):
    """Evidence that cannot be read: where, and what is wrong there."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path, self.what = path, what


def field(body: Any, name: str, path: str) -> Any:
    """A member of an object that must be there."""
    if not isinstance(body, Mapping):
        raise Malformed(path, "an object was expected")
    if name not in body:
        raise Malformed(f"{path}.{name}", "missing")
    return body[name]


def integer(body: Any, name: str, path: str, least: int = 0) -> int:
    """An integer between ``least`` and 2**53."""
    value = field(body, name, path)
    return check_integer(value, f"{path}.{name}", least)


def check_integer(value: Any, path: str, least: int = 0) -> int:
    """As :func:`integer`, for a value already at hand."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
        raise Malformed(path, f"an integer from {least} to 2**53 was expected")
    return value


def check_number(value: Any, path: str) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(path, "a number was expected")
    if not (abs(value) <= 1e300 and isfinite(value)):
        raise Malformed(path, "a finite number was expected")
    return float(value)


def number(body: Any, name: str, path: str) -> float:
    """A finite number."""
    return check_number(field(body, name, path), f"{path}.{name}")


def optional_number(body: Any, name: str, path: str) -> float | None:
    """A finite number or null."""
    value = field(body, name, path)
    return None if value is None else check_number(value, f"{path}.{name}")


def text(body: Any, name: str, path: str) -> str:
    """A string that is not empty."""
    value = field(body, name, path)
    if not isinstance(value, str) or not value:
        raise Malformed(f"{path}.{name}", "a non-empty string was expected")
    return value


def flag(body: Any, name: str, path: str) -> bool:
    """True or false."""
    value = field(body, name, path)
    if not isinstance(value, bool):
        raise Malformed(f"{path}.{name}", "true or false was expected")
    return value


def array(body: Any, name: str, path: str) -> list[Any]:
    """A list."""
    value = field(body, name, path)
    if not isinstance(value, list | tuple):
        raise Malformed(f"{path}.{name}", "an array was expected")
    return list(value)


def many(body: Any, name: str, path: str, read: Callable[[Any, str], T]) -> tuple[T, ...]:
    """A list, each element read by ``read(value, path)``."""
    values = array(body, name, path)
    return tuple(read(value, f"{path}.{name}[{i}]") for i, value in enumerate(values))


def mapping(body: Any, name: str, path: str, read: Callable[[Any, str], T]) -> dict[str, T]:
    """An object with values read by ``read(value, path)``."""
    value = field(body, name, path)
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise Malformed(f"{path}.{name}", "an object was expected")
    return {key: read(value[key], f"{path}.{name}.{key}") for key in sorted(value)}


def pair(value: Any, path: str, read: Callable[[Any, str], T]) -> tuple[T, T]:
    """A list of exactly two."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise Malformed(path, "an array of two was expected")
    return read(value[0], f"{path}[0]"), read(value[1], f"{path}[1]")
