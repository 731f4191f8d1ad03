"""What the types of a record lead to, and whether they can change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass
from fractions import Fraction
from typing import Any, Literal, TypeVar, get_args, get_origin

from flashrt.lab.ontology.code import Code, classes_in, parts_of
from flashrt.lab.records.codec import fields_of

_FIXED = (int, bool, str, bytes, float, Fraction, type(None))

# A way to a field: the record and field at each step.
Way = tuple[tuple[str, str], ...]


def reach(code: Code, record: type) -> Iterator[tuple[Way, tuple[type, ...]]]:
    """Every field that the types of a record lead to, the shortest way to it first.

    Each comes with the record classes that its type is made of.
    """
    waiting: list[tuple[type, Way]] = [(record, ())]
    seen = {record.__name__}
    while waiting:
        cls, before = waiting.pop(0)
        for name, hint, _ in fields_of(cls):
            way = (*before, (cls.__name__, name))
            found = tuple(code.current(part) for part in classes_in(hint))
            yield way, found
            for part in found:
                if part.__name__ not in seen:
                    seen.add(part.__name__)
                    waiting.append((part, way))


def shown(way: Way) -> str:
    """``KVState.where.node``: a way as people read it."""
    return ".".join((way[0][0], *(name for _, name in way)))


def changeable(cls: type) -> str:
    """Why a record can change after it is made, or ``""``."""
    parameters = getattr(cls, "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        return "the class is not a frozen dataclass"
    for name, hint, _ in fields_of(cls):
        part = _changeable(hint)
        if part:
            return f"its field {name} holds a {part}, which can change"
    return ""


def _changeable(hint: Any) -> str:
    """The part of a type whose values can change, or ``""``."""
    if isinstance(hint, TypeVar) or hint is Ellipsis or get_origin(hint) is Literal:
        return ""
    arguments = get_args(hint)
    if get_origin(hint) is not None or arguments:
        origin = get_origin(hint)
        if isinstance(origin, type) and not is_dataclass(origin) and not _joins(hint, origin):
            return origin.__name__
        return next((found for part in parts_of(hint) if (found := _changeable(part))), "")
    if hint in _FIXED or (isinstance(hint, type) and is_dataclass(hint)):
        return ""
    return getattr(hint, "__name__", str(hint))


def _joins(hint: Any, origin: type) -> bool:
    """Whether a type with parts is a tuple or one of several types."""
    return origin is tuple or origin.__name__ in ("UnionType", "Union")
