"""YAML that strangers wrote: one pass of the C parser, no aliases, no duplicate keys, line numbers.

Only what YAML 1.1 and YAML 1.2 read alike is accepted: a plain ``NO``, ``012`` or ``1e3`` means one
thing to the parser here and another to an editor, so it is refused.
"""

from __future__ import annotations

import json
import marshal
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from flashrt.document.canonical import sha256
from flashrt.document.problem import InputError, Problem
from flashrt.document.read import read_regular, text_of

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
MAX_NODES = 100_000
MAX_PATH = 1000
MAX_PROBLEMS = 100
MAX_INTEGER = 2**63 - 1
# Larger files are parsed each time they are read.
_CACHED_BYTES = 64 * 1024
_CACHED_TEXT = 100

_TAG = "tag:yaml.org,2002:"
_PLAIN_KEY = re.compile(r"[^\s\x00-\x20\"\[\]\x7f-\x9f]+")
# YAML 1.2's core schema.
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true", "True", "TRUE", "false", "False", "FALSE"}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_OCTAL = re.compile(r"[-+]?0[0-9]+")


@dataclass(frozen=True)
class Document:
    """A parsed file: its value, its bytes' digest and the line of each JSON path (``$.a[0].b``)."""

    file: str
    value: Any
    digest: str
    lines: dict[str, int] = field(default_factory=dict)

    def line(self, path: str) -> int:
        """Line of a path, or of its nearest parent that has one."""
        while path and path not in self.lines:
            cut = max(path.rfind("."), path.rfind("["))
            path = path[:cut] if cut > 0 else ""
        return self.lines.get(path, 1)


def child(path: str, key: str | int) -> str:
    """The JSON path of an element; a key that could break a message's form is quoted."""
    return f"{path}[{key}]" if isinstance(key, int) else path + _suffix(key)


def _remembered(function: Callable[[str], str]) -> Callable[[str], str]:
    """Remembers the answers for short texts: files repeat their words, and a long one is rare."""
    cached = lru_cache(maxsize=4096)(function)
    return lambda text: cached(text) if len(text) <= _CACHED_TEXT else function(text)


@_remembered
def _suffix(key: str) -> str:
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{json.dumps(key)}]"


def load_yaml(path: Path) -> Document:
    """Parse a YAML file. Raises :class:`InputError` that names file, line and path."""
    data = read_regular(path, MAX_BYTES)
    return parse_yaml(data, str(path))


def parse_yaml(data: bytes, source: str) -> Document:
    """As :func:`load_yaml`, from bytes; ``source`` names the file in messages."""
    if len(data) > _CACHED_BYTES:
        value, lines = _parse(data, source)
        return Document(source, value, sha256(data), lines)
    packed, lines = _packed(data, source)
    return Document(source, marshal.loads(packed), sha256(data), dict(lines))


@lru_cache(maxsize=256)
def _packed(data: bytes, source: str) -> tuple[bytes, dict[str, int]]:
    """The value in a form that gives each caller its own copy."""
    value, lines = _parse(data, source)
    return marshal.dumps(value), lines


def lines_of(data: bytes) -> dict[str, int]:
    """The line of each JSON path of a JSON text, as far as a YAML parser can tell; else empty."""
    try:
        reader = _Reader(data.decode("utf-8"), "", values=False)
        reader.read()
    except (yaml.YAMLError, _Stop, UnicodeDecodeError):
        return {}
    return reader.lines


def _parse(data: bytes, source: str) -> tuple[Any, dict[str, int]]:
    if len(data) > MAX_BYTES:
        what = f"{len(data)} bytes is over the limit of {MAX_BYTES}"
        raise InputError(source, 1, "$", what, "split the file")
    reader = _Reader(text_of(data, source), source, values=True)
    value: Any = None
    try:
        value = reader.read()
    except _Stop:
        pass  # its problem is the last one found
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        reader.refuse(line, "$", f"not YAML: {error.problem}", "repair the line or the one above")
    except yaml.YAMLError as error:
        reader.refuse(1, "$", f"not YAML: {error}", "remove what is no printable text")
    if reader.problems:
        raise InputError.of(sorted(reader.problems, key=lambda p: p.line))
    return value, reader.lines


class _Stop(Exception):
    """What follows in the file cannot be read within bounds."""


class _Reader:
    """Builds a value from the parser's events; every problem of the file is kept, up to a limit."""

    def __init__(self, text: str, source: str, *, values: bool) -> None:
        self.source, self.values = source, values
        self.problems: list[Problem] = []
        self.lines: dict[str, int] = {}
        self._loader: Any = yaml.CSafeLoader(text)

    def refuse(self, line: int, path: str, what: str, do: str) -> None:
        """Keep a problem. Raises ``_Stop`` once there are too many."""
        self.problems.append(Problem(self.source, line, path, what, do))
        if len(self.problems) >= MAX_PROBLEMS:
            raise _Stop

    def read(self) -> Any:
        """The value of the only document; ``problems`` holds what is wrong with it."""
        try:
            next_event = self._loader.get_event
            next_event()  # the stream begins
            if isinstance(next_event(), yaml.StreamEndEvent):
                self.refuse(1, "$", "the file is empty", "say which schema it satisfies")
                return None
            value = self._node(next_event(), "$", 0)
            next_event()  # the document ends
            after = next_event()
            if not isinstance(after, yaml.StreamEndEvent):
                line = after.start_mark.line + 1
                self.refuse(line, "$", "a second document begins here", "keep one a file")
            return value
        finally:
            self._loader.dispose()

    def _node(self, event: Any, path: str, depth: int) -> Any:
        line = event.start_mark.line + 1
        if depth > MAX_DEPTH:
            what = f"not YAML that is read: nested deeper than {MAX_DEPTH}"
            self._stop(line, path[:MAX_PATH], what, "make it flatter")
        if len(self.lines) >= MAX_NODES:
            self._stop(line, path, f"more than {MAX_NODES} values", "split the file")
        if len(path) > MAX_PATH:
            self._stop(line, path[:100] + "…", f"a path over {MAX_PATH} long", "use shorter keys")
        self.lines[path] = line
        if isinstance(event, yaml.AliasEvent):
            self.refuse(line, path, "anchors and aliases are refused", "write the value out")
            return None
        if event.anchor is not None:
            self.refuse(line, path, "anchors and aliases are refused", "write the value out")
        if event.tag is not None:
            do = "remove it: a value's type is as it is written"
            self.refuse(line, path, f"the tag {event.tag!r} is refused", do)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path, depth)
        return self._scalar(event, line, path)

    def _stop(self, line: int, path: str, what: str, do: str) -> None:
        self.refuse(line, path, what, do)
        raise _Stop

    def _sequence(self, path: str, depth: int) -> list[Any]:
        out: list[Any] = []
        while not isinstance(event := self._loader.get_event(), yaml.SequenceEndEvent):
            out.append(self._node(event, f"{path}[{len(out)}]", depth + 1))
        return out

    def _mapping(self, path: str, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        while not isinstance(event := self._loader.get_event(), yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            key = self._key(event, path, line, depth)
            where = child(path, key)
            if key in out:
                self.refuse(line, where, "duplicate key", "keep one of them")
            out[key] = self._node(self._loader.get_event(), where, depth + 1)
            self.lines[where] = line
        return out

    def _key(self, event: Any, path: str, line: int, depth: int) -> str:
        if isinstance(event, yaml.ScalarEvent) and event.tag is None and event.anchor is None:
            key = str(event.value)
            if not event.implicit[0] or _old(key) == "str" or not self.values:
                return key
        else:
            key = "?"
            self._node(event, f"{path}[?]", depth + 1)
        self.refuse(line, path, f"{key!r}: a key must be a plain string", "quote it, or rename it")
        return key

    def _scalar(self, event: Any, line: int, path: str) -> Any:
        text: str = event.value
        if not self.values or not event.implicit[0]:
            return text
        old = _old(text)
        if old == "str" and _new(text) == "str":
            return text
        new = _new(text)
        if old != new or (old == "int" and _OCTAL.fullmatch(text)):
            what = f"{text!r} is {_KINDS.get(old, old)} to YAML 1.1 and {_KINDS[new]} to YAML 1.2"
            if old == new:
                what = f"{text!r} is octal to YAML 1.1 and decimal to YAML 1.2"
            self.refuse(line, path, what, "quote text; write a number in plain decimals")
            return text
        if _NOT_FINITE.fullmatch(text):
            self.refuse(line, path, "NaN and infinity are refused", "write a finite number")
            return text
        return self._number(text, old, line, path)

    def _number(self, text: str, tag: str, line: int, path: str) -> Any:
        if tag in ("null", "bool"):
            return None if tag == "null" else text.lower() == "true"
        if tag == "float":
            number = float(text)
            if not abs(number) <= 1.7976931348623157e308:
                self.refuse(line, path, "NaN and infinity are refused", "write a finite number")
            return number
        whole = int(text, 16 if "x" in text else 10) if len(text) <= 20 else MAX_INTEGER + 1
        if abs(whole) > MAX_INTEGER:
            self.refuse(line, path, "the number is too large", f"the limit is {MAX_INTEGER}")
        return whole


_KINDS = {
    "null": "nothing",
    "bool": "a truth value",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "timestamp": "a date",
    "merge": "a merge",
    "value": "a default value",
}


_RESOLVER: Any = yaml.resolver.Resolver()


@_remembered
def _old(text: str) -> str:
    """What YAML 1.1 takes a plain scalar for."""
    tag: str = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
    return tag.removeprefix(_TAG)


@_remembered
def _new(text: str) -> str:
    """What YAML 1.2's core schema takes a plain scalar for."""
    if text in _NULL:
        return "null"
    if text in _BOOL:
        return "bool"
    if _INT.fullmatch(text):
        return "int"
    if _FLOAT.fullmatch(text) or _NOT_FINITE.fullmatch(text):
        return "float"
    return "str"
