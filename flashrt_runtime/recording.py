"""Whether a step is being recorded on this thread by something that Dynamo does not see.

A seat whose implementation may run in captured forms only asks for it: a CUDA graph, and the
record of a fixed-iteration host, run the host's Python once and replay what it launched.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_HERE = threading.local()


def recording() -> bool:
    """Whether this thread is inside :func:`recorded`."""
    return getattr(_HERE, "depth", 0) > 0


@contextmanager
def recorded() -> Iterator[None]:
    """Calls inside become part of a captured form."""
    _HERE.depth = getattr(_HERE, "depth", 0) + 1
    try:
        yield
    finally:
        _HERE.depth -= 1
