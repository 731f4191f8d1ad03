"""What a release is built from: the part of the receipt store that this room reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from flashrt_runtime.reason import Because

Body = Mapping[str, Any]
Verifier = Callable[[Mapping[str, Any]], list[Because]]
"""Checks a receipt against its schema and recomputes it; empty when every claim in it holds."""


class Source(Protocol):
    """A store of artefacts by kind and digest."""

    def list(self, kind: str) -> Iterator[dict[str, Any]]:
        """Every artefact of a kind."""

    def get(self, kind: str, digest: str) -> dict[str, Any]:
        """One artefact. Raises ``Refusal`` when it is absent or is not what its name says."""

    def table_path(self, digest: str) -> Path:
        """Where a calibration table lies. Raises ``Refusal`` for bytes of another digest."""


def hex_of(digest: str) -> str:
    """The hexadecimal part of ``sha256:<hex>``: the file's name."""
    return digest.removeprefix("sha256:")


def short(digest: str) -> str:
    """The first twelve digits, for people."""
    return hex_of(digest)[:12]


def matches(digest: str, asked: str) -> bool:
    """Whether ``asked`` is the digest or at least eight leading digits of it."""
    wanted = hex_of(asked)
    return len(wanted) >= 8 and hex_of(digest).startswith(wanted)
