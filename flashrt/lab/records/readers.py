"""One reader for each type that a field may have: from its JSON to its value."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any, Literal, Union, get_args, get_origin

from flashrt.lab.records.codec import Wrong, read_record
from flashrt.record import exact
from flashrt.record.exact import LARGEST
from flashrt_runtime.reason import Refusal

Reader = Callable[[Any], Any]
UNIONS = (Union, types.UnionType)
NUMBERS = (int, float, Fraction)
_NAMES = {int: "an integer", bool: "true or false", str: "text", float: "a number"}
_SHOWN = 40


def reader_of(hint: Any, says: Any) -> Reader:
    """The reader of a field: of its type, and within its bounds where it has any."""
    read = reader(hint)
    bounded = says is not None and (says.least is not None or says.above is not None)
    return partial(_within, says, read) if bounded else read


def _within(says: Any, read: Reader, value: Any) -> Any:
    found = read(value)
    wrong = beyond(found, says) if isinstance(found, NUMBERS) else ""
    if wrong:
        raise Wrong(wrong)
    return found


def beyond(value: Any, says: Any) -> str:
    """Why a number is out of its field's bounds, or ``""``."""
    if says.least is not None and not value >= says.least:
        return f"{value} is below {says.least}"
    if says.above is not None and not value > says.above:
        return f"{value} is not above {says.above}"
    return ""


@cache
def reader(hint: Any) -> Reader:
    """The reader of a type. It raises :class:`Wrong` for JSON that is not of it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in UNIONS:
        return _one_of(arguments)
    if origin is Literal:
        return partial(_word, arguments)
    if origin is tuple:
        return _several(arguments)
    if origin is not None:  # a generic record, and what it holds
        return partial(_foreign, origin, arguments[0].from_record)
    if is_dataclass(hint):
        own = hasattr(hint, "tagged")
        return partial(read_record, hint) if own else partial(_foreign, hint, None)
    return {Fraction: _exact, bytes: _bytes}.get(hint) or partial(_plain, hint)


def _shown(value: Any) -> str:
    return f"{str(value)[:_SHOWN]!r}"


def _plain(kind: type, value: Any) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind is float and whole:
        return _whole(value)
    if kind is int and whole and abs(value) > LARGEST:
        raise Wrong(f"{_shown(value)} is beyond {LARGEST}, which is the most that JSON holds")
    if isinstance(value, kind) and (kind is not int or whole):
        return value
    raise Wrong(f"{_NAMES[kind]} was expected, not {_shown(value)}")


def _whole(value: int) -> float:
    """The float that JSON wrote without a point: those below 1e21, by their shortest digits."""
    if abs(value) < 10**21:
        return float(value)
    raise Wrong(f"{_shown(value)} is no number of 64 bits")


def _word(words: tuple[Any, ...], value: Any) -> Any:
    if value in words and not isinstance(value, bool):
        return value
    raise Wrong(f"{_shown(value)} is none of {', '.join(map(str, words))}")


def _exact(value: Any) -> Fraction:
    try:
        return exact(value)
    except Refusal as error:
        raise Wrong(f"{error.what}; {error.do}") from error


def _bytes(value: Any) -> bytes:
    try:
        found = bytes.fromhex(value)
    except (ValueError, TypeError) as error:
        raise Wrong("it is not hexadecimal") from error
    if found.hex() != value:
        raise Wrong("write lower-case hexadecimal without spaces")
    return found


def _foreign(cls: Any, held: Any, value: Any) -> Any:
    """A shared record, which reads itself, and the reader of what it holds."""
    if not isinstance(value, Mapping):
        raise Wrong("an object was expected")
    try:
        return cls.from_record(value) if held is None else cls.from_record(value, held)
    except (KeyError, TypeError) as error:
        raise Wrong(f"it is no {cls.__name__}: {error}") from error
    except Refusal as error:
        # What it holds names itself: the rest of the way is part of what is wrong.
        raise Wrong(": ".join(filter(None, (error.subject, error.what)))) from error


def _several(arguments: tuple[Any, ...]) -> Reader:
    if arguments[-1] is Ellipsis:
        item = reader(arguments[0])
        return lambda value: _items(value, [item] * _length(value))
    readers = [reader(part) for part in arguments]
    return lambda value: _items(value, readers)


def _length(value: Any) -> int:
    if not isinstance(value, list):
        raise Wrong("an array was expected")
    return len(value)


def _items(value: Any, readers: list[Reader]) -> tuple[Any, ...]:
    if _length(value) != len(readers):
        raise Wrong(f"{len(value)} items where {len(readers)} are expected")
    found = []
    for index, (item, read) in enumerate(zip(value, readers, strict=True)):
        try:
            found.append(read(item))
        except Wrong as wrong:
            wrong.steps.append(f"[{index}]")
            raise
    return tuple(found)


def _one_of(arguments: tuple[Any, ...]) -> Reader:
    """A record of several is found by its ``type``; a plain value by what it is."""
    none = type(None) in arguments
    kinds = [kind for kind in arguments if kind is not type(None)]
    tags = {
        getattr(kind, "__name__", ""): reader(kind) for kind in kinds if hasattr(kind, "tagged")
    }
    plain = {kind: reader(kind) for kind in kinds}
    only = reader(kinds[0]) if len(kinds) == 1 else None

    def read(value: Any) -> Any:
        if value is None and none:
            return None
        named = value.get("type") if isinstance(value, Mapping) else None
        chosen = only or tags.get(named if isinstance(named, str) else "") or plain.get(type(value))
        if chosen is None:
            names = ", ".join(kind.__name__ for kind in kinds)
            raise Wrong(f"{_shown(value)} is none of {names}")
        return chosen(value)

    return read
