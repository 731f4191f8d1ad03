"""Reading files that strangers name: regular files only, and never more than a limit."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from flashrt.document.problem import InputError

_BOM = b"\xef\xbb\xbf"


def read_regular(path: Path, limit: int) -> bytes:
    """The file's bytes. Raises :class:`InputError` for what is no regular file or is over
    ``limit`` bytes, before it is read: a pipe would wait for ever and a device never ends.
    """
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise InputError(str(path), 1, "$", "not a regular file", "name a file")
        if found.st_size > limit:
            raise _over(path, found.st_size, limit)
        with open(path, "rb") as handle:
            data = handle.read(limit + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        said = getattr(error, "strerror", None) or str(error)
        raise InputError(str(path), 1, "$", said, "name a file that can be read") from error
    if len(data) > limit:  # it grew since it was measured
        raise _over(path, len(data), limit)
    return data


def _over(path: Path, size: int, limit: int) -> InputError:
    return InputError(
        str(path), 1, "$", f"{size} bytes is over the limit of {limit}", "split the file"
    )


def text_of(data: bytes, source: str) -> str:
    """The text of a file whose bytes are its identity: UTF-8, no byte order mark, lines end in LF.

    An editor or a checkout that adds a mark or carriage returns changes the digest of a file that
    reads the same, so both are refused. Raises :class:`InputError`.
    """
    if data.startswith(_BOM):
        do = "save it as UTF-8 without one"
        raise InputError(source, 1, "$", "it begins with a byte order mark", do)
    if b"\r" in data:
        line = data.count(b"\n", 0, data.index(b"\r")) + 1
        do = "end lines with LF (git: core.autocrlf=input)"
        raise InputError(source, line, "$", "a carriage return ends this line", do)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"not UTF-8 at byte {error.start}"
        raise InputError(source, line, "$", what, "save it as UTF-8") from error
