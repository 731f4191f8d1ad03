"""YAML that strangers wrote: safe C loader, no aliases, no duplicate keys, line numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from flashrt.document.canonical import sha256
from flashrt.document.problem import InputError
from flashrt.document.read import read_regular

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
MAX_INTEGER = 2**63 - 1
_CONTAINERS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


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


class _Refused(Exception):
    def __init__(self, line: int, path: str, what: str) -> None:
        super().__init__(what)
        self.line, self.path, self.what = line, path, what


def _build(node: yaml.Node, path: str, lines: dict[str, int], loader: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise _Refused(node.start_mark.line + 1, path, f"nested deeper than {MAX_DEPTH}")
    lines[path] = node.start_mark.line + 1
    if not isinstance(node, yaml.ScalarNode) and node.tag not in _CONTAINERS:
        raise _Refused(node.start_mark.line + 1, path, f"the tag {node.tag!r} is refused")
    if isinstance(node, yaml.MappingNode):
        out: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
                raise _Refused(line, path, "a key must be a plain string")
            key = key_node.value
            if key in out:
                raise _Refused(line, f"{path}.{key}", "duplicate key")
            out[key] = _build(value_node, f"{path}.{key}", lines, loader, depth + 1)
            lines[f"{path}.{key}"] = line
        return out
    if isinstance(node, yaml.SequenceNode):
        return [
            _build(child, f"{path}[{i}]", lines, loader, depth + 1)
            for i, child in enumerate(node.value)
        ]
    if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.rpartition(":")[2] not in {
        "str",
        "int",
        "float",
        "bool",
        "null",
    }:
        raise _Refused(node.start_mark.line + 1, path, f"the tag {node.tag!r} is refused")
    value = loader.construct_object(node)
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise _Refused(node.start_mark.line + 1, path, "the number is too large")
    if isinstance(value, float) and not (abs(value) <= 1.7976931348623157e308):
        raise _Refused(node.start_mark.line + 1, path, "NaN and infinity are refused")
    return value


def load_yaml(path: Path) -> Document:
    """Parse a YAML file. Raises :class:`InputError` that names file, line and path."""
    data = read_regular(path, MAX_BYTES)
    return parse_yaml(data, str(path))


def parse_yaml(data: bytes, source: str) -> Document:
    """As :func:`load_yaml`, from bytes; ``source`` names the file in messages."""
    if len(data) > MAX_BYTES:
        raise InputError(source, 1, "$", f"{len(data)} bytes is over the limit of {MAX_BYTES}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(source, 1, "$", f"not UTF-8 at byte {error.start}") from error
    lines: dict[str, int] = {}
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                line = event.start_mark.line + 1
                raise _Refused(line, "$", "anchors and aliases are refused")
        loader = yaml.CSafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                raise _Refused(1, "$", "the file is empty")
            value = _build(node, "$", lines, loader, 0)
        finally:
            loader.dispose()
    except _Refused as error:
        raise InputError(source, error.line, error.path, error.what) from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(source, line, "$", f"not YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError(source, 1, "$", f"not YAML: {error}") from error
    return Document(source, value, sha256(data), lines)
