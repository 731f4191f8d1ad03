"""What the exit status of a command says."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from flashrt_runtime.reason import Reason


class ExitCode(IntEnum):
    """0 to 3 are results; the rest say that there is no result."""

    OK = 0  # every requested cell was measured and no gate failed
    GATE_FAILED = 1  # a gate failed, or a cell is below --require
    REFUSED = 2  # the input was refused
    NOT_MEASURED = 3  # something asked for could not be measured here
    BUG = 70  # flashrt itself failed
    NOT_WRITTEN = 74  # stdout could not be written: a full disk, say
    INTERRUPTED = 130  # Ctrl-C
    PIPE_CLOSED = 141  # whoever read the output went away


_PRECEDENCE = (ExitCode.REFUSED, ExitCode.GATE_FAILED, ExitCode.NOT_MEASURED)

_GATES = frozenset(
    {
        Reason.FALLBACK,
        Reason.NEVER_CALLED,
        Reason.ROLLBACK,
        Reason.FLOOR,
        Reason.BAND_LOW,
        Reason.VERDICT,
        Reason.STATISTIC,
    }
)
_UNMEASURED = frozenset(
    {
        Reason.ARCH_ABSENT,
        Reason.UNKNOWN_CELL,
        Reason.NOISE,
        Reason.INCOMPLETE,
        Reason.UNCAPTURABLE,
        Reason.EMPTY_CONTROL,
    }
)


def combine(codes: Iterable[int]) -> ExitCode:
    """One code for several: the first of 2, 1, 3 that is there, else 0."""
    seen = set(codes)
    return next((code for code in _PRECEDENCE if code in seen), ExitCode.OK)


def of_reason(reason: Reason) -> ExitCode:
    """The code of an operation that was refused for this reason."""
    if reason in _GATES:
        return ExitCode.GATE_FAILED
    return ExitCode.NOT_MEASURED if reason in _UNMEASURED else ExitCode.REFUSED
