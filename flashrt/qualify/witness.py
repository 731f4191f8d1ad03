"""A clock that an impl cannot change by patching Python's, and how a patched one is seen."""

from __future__ import annotations

import ctypes
import time
import types
from collections.abc import Mapping

from flashrt.gate.integrity import Attack, Finding

WATCHED = (
    "clock_gettime_ns",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "process_time",
    "process_time_ns",
    "sleep",
    "thread_time",
    "thread_time_ns",
    "time",
    "time_ns",
)
# Held from when this module is imported: before any impl is loaded.
HELD: Mapping[str, object] = {name: getattr(time, name) for name in WATCHED}
_now_ns = time.perf_counter_ns
_sleep = time.sleep
SLACK_NS = 50_000_000
SHARE = 0.01


class HeldClock:
    """The machine's performance counter, called by a reference that was taken at import.

    Whoever replaces ``time.perf_counter_ns`` afterwards changes nothing here, and is seen.
    """

    def now_ns(self) -> int:
        """Nanoseconds of the machine's performance counter."""
        return _now_ns()

    def sleep(self, seconds: float) -> None:
        """As ``time.sleep``."""
        _sleep(seconds)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def kernel_ns() -> int:
    """Nanoseconds of ``CLOCK_MONOTONIC``, asked of the C library without Python's ``time``."""
    found = _Timespec()
    ctypes.CDLL(None).clock_gettime(time.CLOCK_MONOTONIC, ctypes.byref(found))
    return int(found.seconds) * 1_000_000_000 + int(found.nanoseconds)


def patched() -> list[str]:
    """Names in Python's ``time`` that are no longer what they were, or never were built in."""
    return [
        f"time.{name}"
        for name, held in HELD.items()
        if getattr(time, name, None) is not held or not isinstance(held, types.BuiltinFunctionType)
    ]


def clock_findings(held_ns: int, machine_ns: int, subject: str) -> list[Finding]:
    """Findings of a race: what is patched now, and two clocks that disagree on its length.

    ``held_ns`` is the race's length by the clock that timed it, ``machine_ns`` by the kernel's.
    """
    found = [
        Finding(Attack.PATCHED_CLOCK, subject, f"{name} was replaced by something else")
        for name in patched()
    ]
    apart = abs(held_ns - machine_ns)
    if not (apart <= SLACK_NS + SHARE * machine_ns):
        detail = f"the race lasted {held_ns} ns by its clock and {machine_ns} ns by the kernel's"
        found.append(Finding(Attack.PATCHED_CLOCK, subject, detail))
    return found
