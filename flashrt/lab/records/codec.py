"""Records to JSON and back, by the types of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from flashrt.record import exact_text
from flashrt_runtime.reason import Reason, Refusal

# What a value of JSON is by itself.
_PLAIN = (str, bool, int, float, type(None))


def fields_of(cls: Any) -> tuple[tuple[str, Any, Any], ...]:
    """Each field of a record: its name, its type without notes, and its ``Says`` or ``None``."""
    return _fields_of(cls)


@cache
def _fields_of(cls: Any) -> tuple[tuple[str, Any, Any], ...]:
    hints = get_type_hints(cls, include_extras=True)
    found = []
    for field in fields(cls):
        hint, says = hints[field.name], None
        if get_origin(hint) is Annotated:
            hint, *notes = get_args(hint)
            says = next((note for note in notes if hasattr(note, "unit")), None)
        found.append((field.name, hint, says))
    return tuple(found)


@cache
def said_of(cls: Any) -> dict[str, str]:
    """What the JSON of a class says of itself: its ``type``, or the ``schema`` of a document."""
    found = {"type": cls.__name__} if cls.tagged else {}
    return found | ({"schema": cls.document} if cls.document else {})


@cache
def _shown(cls: Any) -> tuple[str, ...]:
    return tuple(name for name, _, says in fields_of(cls) if says is None or not says.held)


def encode(record: Any) -> dict[str, Any]:
    """JSON form of a record."""
    cls: Any = type(record)
    body: dict[str, Any] = dict(said_of(cls))
    for name in _shown(cls):
        body[name] = _encoded(getattr(record, name))
    return body


def _encoded(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, tuple):
        return [_encoded(item) for item in value]
    if isinstance(value, Fraction):
        return exact_text(value)
    return value.hex() if isinstance(value, bytes) else value.record()


class Wrong(Exception):
    """What is wrong with a value, and the steps that lead to it, the last first."""

    def __init__(self, what: str, *steps: str) -> None:
        super().__init__(what)
        self.what = what
        self.steps = list(steps)


@cache
def _plan(cls: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """A reader for each field in the JSON, and which fields it must have."""
    from flashrt.lab.records.readers import reader_of

    parts = {name: (hint, says) for name, hint, says in fields_of(cls)}
    needed = (f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING)
    return {name: reader_of(*parts[name]) for name in _shown(cls)}, frozenset(needed)


def decode(cls: Any, body: Any) -> Any:
    """The record of class ``cls`` that a JSON object describes.

    Raises :class:`Refusal` (SCHEMA) whose subject is the way to what is wrong, such as
    ``ExperimentDesign.arms[0].name``.
    """
    try:
        return read_record(cls, body)
    except Wrong as wrong:
        subject = "".join((cls.__name__, *reversed(wrong.steps)))
        raise Refusal(Reason.SCHEMA, wrong.what, subject=subject) from wrong


def read_record(cls: Any, body: Any) -> Any:
    """As :func:`decode`, for a record within another. Raises :class:`Wrong`."""
    if not isinstance(body, Mapping):
        raise Wrong("an object was expected")
    readers, needed = _plan(cls)
    says = said_of(cls)
    for key, text in says.items():
        if body.get(key) != text:
            raise Wrong(f"it is not {text}", f".{key}")
    values = {}
    for name, value in body.items():
        if name in readers:
            try:
                values[name] = readers[name](value)
            except Wrong as wrong:
                wrong.steps.append(f".{name}")
                raise
        elif name not in says:
            raise Wrong("there is no such field", f".{name}")
    for name in needed:
        if name not in values:
            raise Wrong("the field is missing", f".{name}")
    return cls(**values)
