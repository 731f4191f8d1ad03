"""Whether a value is of its field's type and within its bounds."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any, Literal, get_args, get_origin

from flashrt.lab.records.readers import NUMBERS, UNIONS, beyond
from flashrt.record.exact import LARGEST

_SHOWN = 40


def misfit(value: Any, hint: Any, says: Any) -> str:
    """Why a value may not stand in a field, or ``""``.

    Truth values are no numbers, and a float is no exact number. Bounds are of the field itself,
    and not of what a tuple in it holds.
    """
    if not _is(value, hint):
        return f"{_named(hint)} was expected, not {str(value)[:_SHOWN]!r}"
    wrong = beyond(value, says) if says is not None and isinstance(value, NUMBERS) else ""
    if wrong:
        return wrong
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"{value} is beyond {LARGEST}, which is the most that JSON holds"
    return ""


def _is(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in UNIONS:
        return any(_is(value, kind) for kind in arguments)
    if origin is Literal:
        return value in arguments and not isinstance(value, bool)
    if origin is tuple:
        return isinstance(value, tuple) and _are(value, arguments)
    expected = origin or hint
    return isinstance(value, expected) and (expected is bool or not isinstance(value, bool))


def _are(values: tuple[Any, ...], kinds: tuple[Any, ...]) -> bool:
    if kinds[-1] is Ellipsis:
        return all(_is(value, kinds[0]) for value in values)
    return len(values) == len(kinds) and all(map(_is, values, kinds))


def _named(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in UNIONS or origin is Literal:
        return " or ".join(_named(kind) for kind in arguments)
    plain = isinstance(hint, type) and (is_dataclass(hint) or not arguments)
    return str(hint.__name__ if plain else hint)
