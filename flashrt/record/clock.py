"""Two clocks, and no field that could hold either: measured instants, and exact virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from flashrt.record.exact import exact, exact_text
from flashrt_runtime.reason import Reason, Refusal


@dataclass(frozen=True)
class WallClock:
    """When something was measured: RFC 3339 in UTC, as ``2026-01-31T12:00:00.5Z``.

    A machine's clock may be set back while something runs, so the order is told and not required:
    a measurement is kept, and verifying it says what is wrong. Raises :class:`Refusal` (CONFLICT)
    for what is no instant in UTC.
    """

    started_at: str
    ended_at: str

    def __post_init__(self) -> None:
        _instant(self.started_at)
        _instant(self.ended_at)

    @property
    def ordered(self) -> bool:
        """Whether the end is not before the start."""
        return _instant(self.started_at) <= _instant(self.ended_at)

    def record(self) -> dict[str, Any]:
        """JSON form: ``{"started_at", "ended_at"}``."""
        return {"started_at": self.started_at, "ended_at": self.ended_at}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> WallClock:
        """The inverse of :meth:`record`; other keys are not looked at."""
        return cls(record["started_at"], record["ended_at"])


@dataclass(frozen=True)
class VirtualClock:
    """The span of a simulated run, in exact virtual microseconds. It says nothing of real time.

    Raises :class:`Refusal` (CONFLICT) for an end before the start and for a float.
    """

    started_us: Fraction
    ended_us: Fraction

    def __post_init__(self) -> None:
        for value in (self.started_us, self.ended_us):
            if not isinstance(value, Fraction):
                what = f"virtual time is exact, and {value!r} is no fraction"
                raise Refusal(Reason.CONFLICT, what, subject="virtual clock")
        if not self.started_us <= self.ended_us:
            what = f"the end {self.ended_us} is before the start {self.started_us}"
            raise Refusal(Reason.CONFLICT, what, subject="virtual clock")

    def record(self) -> dict[str, Any]:
        """JSON form: ``{"started_us", "ended_us"}``, each an integer or ``"p/q"``."""
        return {
            "started_us": exact_text(self.started_us),
            "ended_us": exact_text(self.ended_us),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> VirtualClock:
        """The inverse of :meth:`record`."""
        return cls(exact(record["started_us"]), exact(record["ended_us"]))


def _instant(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise Refusal(Reason.CONFLICT, f"no such time: {error}", subject="wall clock") from error
    if moment.utcoffset() != timedelta(0):
        raise Refusal(Reason.CONFLICT, f"{text} is not in UTC", subject="wall clock")
    return moment
