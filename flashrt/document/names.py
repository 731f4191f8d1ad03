"""Names of files and folders that go into records: text, so that every reader can hold them."""

from __future__ import annotations

from pathlib import Path

from flashrt.document.problem import InputError


def text_name(name: str, path: Path) -> str:
    """The name as it is. Raises :class:`InputError` for one whose bytes are not UTF-8."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        shown = str(path).encode("utf-8", "backslashreplace").decode()
        raise InputError(shown, 1, "$", "its name is not UTF-8", "rename it") from error
    return name
