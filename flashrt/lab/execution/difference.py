"""How two JSON forms differ: paths with both values, and nothing about what that means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flashrt.document.yaml_source import child

ABSENT = "(nothing)"
_SHOWN = 100


@dataclass(frozen=True)
class Difference:
    """One path, and what stands there in the first and in the second."""

    path: str
    first: str
    second: str

    def record(self) -> dict[str, str]:
        """JSON form."""
        return {"path": self.path, "first": self.first, "second": self.second}


def differences(first: Any, second: Any, path: str = "$") -> Iterator[Difference]:
    """Where two JSON values differ, in the order of the first's keys, then the second's."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in dict.fromkeys((*first, *second)):
            if key in first and key in second:
                yield from differences(first[key], second[key], child(path, key))
            else:
                shown = [say(side[key]) if key in side else ABSENT for side in (first, second)]
                yield Difference(child(path, key), *shown)
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from differences(one, other, child(path, index))
    elif type(first) is not type(second) or first != second:
        yield Difference(path, say(first), say(second))


def say(value: Any) -> str:
    """A value in short: text as it is, else compact JSON, cut at a hundred characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
