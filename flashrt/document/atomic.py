"""Writes that are whole or absent: temporary file, fsync, rename; content decides the name."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

from flashrt_runtime.reason import Reason, Refusal


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _stored(path: Path) -> Iterator[None]:
    """What the file system refuses, as a refusal: STORAGE."""
    try:
        yield
    except OSError as error:
        raise Refusal(
            Reason.STORAGE,
            f"cannot write: {error.strerror or error}",
            subject=str(path),
            do="free space or choose a writable folder, then run the same command again",
        ) from error


def _write(path: Path, data: bytes, give: Callable[[Path, Path], None]) -> None:
    """Write a temporary file whole, and have ``give(temporary, path)`` give it its name."""
    temporary = path.parent / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        give(temporary, path)
        _sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):  # its folder may not exist, or not be a folder
            temporary.unlink(missing_ok=True)


def write_atomic(path: Path, data: bytes) -> None:
    """Write ``data`` so that a reader sees the old file or the new one, never a part.

    Raises :class:`Refusal` (STORAGE) when the disk is full or the folder cannot be written; the
    file that was there, if any, is untouched and no temporary file is left.
    """
    with _stored(path):
        _write(path, data, os.replace)


def write_once(path: Path, data: bytes) -> None:
    """Write a file that must not be there yet, unless it holds the same.

    The name is taken by a link, which fails where one is: no writer replaces another's file.
    Raises :class:`Refusal` (DIGEST, STORAGE); nothing is left behind.
    """
    with _stored(path):
        if not path.exists():
            with contextlib.suppress(FileExistsError):  # then another writer's is compared
                _write(path, data, os.link)
        there = path.read_bytes()
    if there != data:
        do = "choose another name, or move that file away"
        what = "the file of this name holds something else, and stays as it is"
        raise Refusal(Reason.DIGEST, what, subject=str(path), do=do)
