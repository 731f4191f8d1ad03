"""Finds in what is to be published what belongs to one machine or one person."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Starts at a root: not the slashes of a URL, a unit (tokens/s) or a fraction.
_UNIX = re.compile(
    # A path that says nothing about anyone: /proc/stat is everybody's.
    r"(?<![\w./@%)-])(?!/(?:proc|sys|dev)/)"
    r"(?:(?:/(?!/)[\w.+@~-]+){2,}|/(?:home|root|Users|tmp|mnt|data)\b)"
)
_HOME = re.compile(r"(?<![\w/])~[\w.-]*/")
_WINDOWS = re.compile(r"(?<![A-Za-z])[A-Za-z]:[\\/](?!/)|\\\\[\w.-]+\\")
_FILE_URL = re.compile(r"\bfile:/", re.IGNORECASE)
_MAIL = re.compile(r"[\w.+-]+@[A-Za-z][\w-]*(?:\.[A-Za-z][\w-]*)*\.[A-Za-z]{2,}\b")
# Names that say nothing about anyone, and that ordinary sentences hold.
_COMMON = frozenset(
    {"root", "user", "users", "home", "admin", "runner", "ubuntu", "debian", "localhost", "docker",
     "build", "test", "nobody", "host", "default", "linux", "main", "local", "flashrt", "torch",
     "python", "cpu", "model"}
)  # fmt: skip


@dataclass(frozen=True)
class Leak:
    """What was found, and the JSON path of the string that holds it."""

    path: str
    what: str


def this_machine() -> frozenset[str]:
    """The names of this user and this machine that are telling enough to look for."""
    import getpass
    import socket

    names = {Path.home().name, socket.gethostname(), socket.gethostname().partition(".")[0]}
    with contextlib.suppress(KeyError, OSError):  # a user id without a name has none to leak
        names.add(getpass.getuser())
    return frozenset(n for n in names if len(n) >= 3 and n.lower() not in _COMMON)


def _kind(text: str, names: frozenset[str]) -> str | None:
    for pattern, what in (
        (_UNIX, "an absolute path"),
        (_HOME, "a path in a home folder"),
        (_WINDOWS, "an absolute path"),
        (_FILE_URL, "a file URL"),
        (_MAIL, "an e-mail address"),
    ):
        if pattern.search(text):
            return what
    for name in names:
        if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE):
            return "the name of this user or machine"
    return None


def leaks(value: Any, names: frozenset[str], path: str = "$") -> Iterator[Leak]:
    """Every string, keys included, that holds a path, a name of ``names`` or an address."""
    if isinstance(value, str):
        what = _kind(value, names)
        if what:
            yield Leak(path, what)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaks(key, names, f"{path}.{key}")
            yield from leaks(item, names, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from leaks(item, names, f"{path}[{index}]")
