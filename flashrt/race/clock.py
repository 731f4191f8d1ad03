"""The clock that a race reads. Injected, so that no test waits or depends on a machine."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic time in whole nanoseconds, and a way to wait."""

    def now_ns(self) -> int:
        """Nanoseconds since a fixed, arbitrary origin; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Return after about ``seconds``."""


class MachineClock:
    """The machine's monotonic performance counter."""

    def now_ns(self) -> int:
        """Nanoseconds of ``time.perf_counter_ns``."""
        return time.perf_counter_ns()

    def sleep(self, seconds: float) -> None:
        """As ``time.sleep``."""
        time.sleep(seconds)
