"""What production runs: consumes receipts, never benchmarks.

Importing this package imports next to nothing, torch least of all; :func:`load` and the names of
refusals do so when they are first used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flashrt_runtime.activate import Release
    from flashrt_runtime.reason import Because, Reason, Refusal

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
    from pathlib import Path

    from flashrt_runtime.activate import Release
    from flashrt_runtime.release_reader import read_release

    return Release(read_release(Path(release_dir), trust, allow_unsigned))


def __getattr__(name: str) -> object:
    if name in ("Because", "Reason", "Refusal"):
        from flashrt_runtime import reason

        return getattr(reason, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
