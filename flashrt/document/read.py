"""Reading files that strangers name: regular files only, and never more than a limit."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from flashrt.document.problem import InputError


def read_regular(path: Path, limit: int) -> bytes:
    """The file's bytes. Raises :class:`InputError` for what is no regular file or is over
    ``limit`` bytes, before it is read: a pipe would wait for ever and a device never ends.
    """
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise InputError(str(path), 1, "$", "not a regular file")
        if found.st_size > limit:
            what = f"{found.st_size} bytes is over the limit of {limit}"
            raise InputError(str(path), 1, "$", what)
        with open(path, "rb") as handle:
            return handle.read(limit + 1)
    except OSError as error:
        raise InputError(str(path), 1, "$", error.strerror or str(error)) from error
