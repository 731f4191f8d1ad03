"""Where executions are kept: content decides the name, and a file that is there stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flashrt.document.atomic import write_once
from flashrt.document.canonical import MAX_BYTES, canonical_bytes, seal
from flashrt.document.problem import InputError
from flashrt_runtime.reason import Reason, Refusal

DEFAULT_ROOT = Path(".flashrt/lab")
_NAME = re.compile(r"[0-9a-f]{64}\.json")
_START = re.compile(r"(?:sha256:)?([0-9a-f]{6,64})")


class ExecutionStore:
    """Records under ``root/<hex>.json``.

    Any number of processes may write at once: equal content has an equal name and equal bytes,
    and a file appears whole or not at all.
    """

    def __init__(self, root: Path = DEFAULT_ROOT) -> None:
        self.root = root

    def put(self, body: dict[str, Any]) -> Path:
        """Seal and keep a record; its path. Putting it again changes nothing.

        Raises :class:`Refusal`: DIGEST when the file of that name holds something else (it is left
        as it is), STORAGE when it cannot be written, or is too long to be read again.
        """
        sealed = seal(body)
        data = canonical_bytes(sealed)
        if len(data) > MAX_BYTES:
            what = f"a record of {len(data)} bytes could not be read again: {MAX_BYTES} is the most"
            do = "execute fewer requests, or smaller budgets"
            raise Refusal(Reason.STORAGE, what, subject=str(self.root), do=do)
        path = self.root / f"{sealed['digest'].removeprefix('sha256:')}.json"
        write_once(path, data)
        return path

    def list(self) -> Iterator[Path]:
        """The records' files, sorted by name."""
        if self.root.is_dir():
            yield from sorted(p for p in self.root.iterdir() if _NAME.fullmatch(p.name))

    def find(self, said: str) -> Path:
        """The record that a path, a digest or its beginning (six digits at least) names.

        Raises :class:`InputError` (UNKNOWN_CELL when there is none, AMBIGUOUS when several).
        """
        path = Path(said)
        if path.is_file():
            return path
        match = _START.fullmatch(said)
        found = [p for p in self.list() if match and p.name.startswith(match[1])]
        if len(found) == 1:
            return found[0]
        if found:
            what = f"{len(found)} records begin so"
            do = "write more digits"
            raise InputError(said, 1, "$", what, do, reason=Reason.AMBIGUOUS)
        what = f"no such file, and no record in {self.root} begins so"
        if not match:
            what = "no such file, and not a digest or the first six digits of one or more"
        do = "see `flashrt lab run`, or give another --store"
        raise InputError(said, 1, "$", what, do, reason=Reason.UNKNOWN_CELL)
