"""How many threads torch may use for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def at_most(threads: int | None) -> Iterator[None]:
    """Torch on so many threads, the caller's number afterwards; ``None`` changes nothing."""
    before = torch.get_num_threads()
    if threads is None or threads == before:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
