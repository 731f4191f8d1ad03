"""Whether what a command will write at its end can be written, before minutes are spent."""

from __future__ import annotations

import tempfile
from pathlib import Path

from flashrt_runtime.reason import Reason, Refusal


def require_folder(folder: Path) -> None:
    """Refuse (STORAGE) a folder that cannot be made or written into. Nothing is left behind."""
    there = folder.absolute()
    while not there.exists() and not there.is_symlink() and there != there.parent:
        there = there.parent
    try:
        if not there.is_dir():
            raise NotADirectoryError(f"{there} is not a folder")
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise Refusal(
            Reason.STORAGE,
            f"cannot be written into: {error.strerror or error}",
            subject=str(folder),
            do="choose a writable folder",
        ) from error


def require_file(file: Path) -> None:
    """Refuse (STORAGE) a file that cannot be written, or replaced where it is there."""
    if file.is_dir():
        what = "a folder of this name is there"
        raise Refusal(Reason.STORAGE, what, subject=str(file), do="choose another name")
    require_folder(file.parent)
