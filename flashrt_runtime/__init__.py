"""What production runs: consumes receipts, never benchmarks.

Importing this package imports neither torch nor anything else that is heavy; :func:`load` does so
when it is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    from flashrt_runtime.activate import Release

__all__ = ["Because", "Reason", "Refusal", "load"]


def load(
    release_dir: str | Path,
    trust: Sequence[bytes | str] | None = None,
    allow_unsigned: bool = False,
) -> Release:
    """Read a release folder: signature first, then every file's digest, then its contents.

    ``trust`` are ed25519 public keys (32 raw bytes, PEM, or hex). Raises :class:`Refusal`
    (SIGNATURE, DIGEST, SCHEMA, …) and returns nothing partial.
    """
    from flashrt_runtime.activate import Release
    from flashrt_runtime.release_reader import read_release

    return Release(read_release(Path(release_dir), trust, allow_unsigned))
