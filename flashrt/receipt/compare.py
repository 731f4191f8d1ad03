"""Where two JSON values differ, by path. Numbers that agree to 12 digits are equal.

A statistic is recomputed on another machine by another C library, whose exponential may differ in
the last bit; nothing that anybody would claim fits into the twelfth digit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

TOLERANCE = 1e-12


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def same_scalar(left: Any, right: Any) -> bool:
    """Whether two JSON scalars say the same; NaN says nothing."""
    if _is_number(left) and _is_number(right):
        return left == right or abs(left - right) <= TOLERANCE * max(abs(left), abs(right))
    return type(left) is type(right) and left == right


def differences(left: Any, right: Any, path: str = "$") -> Iterator[str]:
    """Paths at which the values differ, in order."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for key in sorted(set(left) | set(right), key=str):
            where = f"{path}.{key}"
            if key in left and key in right:
                yield from differences(left[key], right[key], where)
            else:
                yield where
    elif isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            yield path
            return
        for i, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from differences(one, other, f"{path}[{i}]")
    elif not same_scalar(left, right):
        yield path
