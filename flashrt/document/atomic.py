"""Writes that are whole or absent: temporary file, fsync, rename; content decides the name."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from flashrt_runtime.reason import Reason, Refusal


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomic(path: Path, data: bytes) -> None:
    """Write ``data`` so that a reader sees the old file or the new one, never a part.

    Raises :class:`Refusal` (STORAGE) when the disk is full or the folder cannot be written; the
    file that was there, if any, is untouched and no temporary file is left.
    """
    temporary = path.parent / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise Refusal(
            Reason.STORAGE,
            f"cannot write: {error.strerror or error}",
            subject=str(path),
            do="free space or choose a writable folder, then run the same command again",
        ) from error
    finally:
        with contextlib.suppress(OSError):  # its folder may not exist, or not be a folder
            temporary.unlink(missing_ok=True)
