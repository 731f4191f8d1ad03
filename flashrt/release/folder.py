"""A release as a folder: whole or absent, and never written over."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from flashrt.document.canonical import read_json
from flashrt_runtime.reason import Reason, Refusal


class Written(Enum):
    """What :func:`write_folder` did."""

    NEW = "written"
    SAME = "already there, byte for byte"


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _fill(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    for path in [folder, *(p for p in folder.rglob("*") if p.is_dir())]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_folder(target: Path, files: Mapping[str, bytes]) -> Written:
    """Write the files into a folder beside the target and rename it into place.

    Raises :class:`Refusal` (CONFLICT) when the target holds anything else, (STORAGE) when it
    cannot be written; in both cases the target is as it was.
    """
    temporary = target.parent / f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        if target.is_dir() and any(target.iterdir()):
            return _compare(target, files)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        _fill(temporary, files)
        os.rename(temporary, target)  # replaces an empty folder, refuses any other
        return Written.NEW
    except OSError as error:
        if target.is_dir() and any(target.iterdir()):
            return _compare(target, files)  # another writer was faster
        raise Refusal(
            Reason.STORAGE,
            f"cannot write: {error.strerror or error}",
            subject=str(target),
            do="free space or choose a writable folder, then run the same command again",
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _compare(target: Path, files: Mapping[str, bytes]) -> Written:
    if _contents(target) == dict(files):
        return Written.SAME
    raise Refusal(
        Reason.CONFLICT,
        "the folder holds something else, and a release is never written over",
        subject=str(target),
        do="choose another folder",
    )


def created_at(target: Path) -> str | None:
    """The time that a release already in the folder names, so that building it again is the same
    release; ``None`` where there is none."""
    path = target / "release.json"
    if not path.is_file():
        return None
    value = read_json(path).get("created_at")
    return value if isinstance(value, str) else None
