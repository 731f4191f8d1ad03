"""How far a phase of a measuring process is, told at most every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
EVERY_S = 5.0


def counted(
    say: Callable[[str], None],
    text: str,
    items: Iterable[T],
    *,
    every_s: float = EVERY_S,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[T]:
    """The items one by one; ``say`` is told the phase and the total when it begins, and
    ``text: DONE of TOTAL`` between two items once ``every_s`` seconds have passed since."""
    waiting = list(items)
    say(f"{text}: {len(waiting)}")
    told = now()
    for done, item in enumerate(waiting):
        if done and now() - told >= every_s:
            say(f"{text}: {done} of {len(waiting)}")
            told = now()
        yield item
