"""What became of one requested cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flashrt.gate.judge import UNKNOWN
from flashrt.qualify.request import CellRequest
from flashrt_runtime.reason import Because, Reason

# A gate that failed, as against something that was not measured or was merely slower.
FAILED_GATES = frozenset(
    {
        Reason.NONFINITE,
        Reason.NEVER_CALLED,
        Reason.FALLBACK,
        Reason.FLOOR,
        Reason.ROLLBACK,
        Reason.EMPTY_CONTROL,
        Reason.CONSTANT,
        Reason.IMPLAUSIBLE,
        Reason.SHAPE,
        Reason.DTYPE,
        Reason.SCALE,
        Reason.INTEGRITY,
    }
)


@dataclass(frozen=True)
class CellResult:
    """One cell's receipt (``None`` when nothing could be measured) and why it is not more."""

    request: CellRequest
    receipt: Mapping[str, Any] | None
    reasons: tuple[Because, ...] = ()

    @property
    def state(self) -> str:
        """The verdict's state; ``unknown`` without a receipt."""
        return str(self.receipt["verdict"]["state"]) if self.receipt else UNKNOWN

    @property
    def because(self) -> tuple[Because, ...]:
        """The verdict's reasons, or why there is no receipt."""
        if self.receipt is None:
            return self.reasons
        return tuple(Because.from_record(r) for r in self.receipt["verdict"]["reasons"])

    @property
    def gate_failed(self) -> bool:
        """Whether a correctness gate failed on what was measured."""
        measured = self.receipt is not None and self.state == UNKNOWN
        return measured and any(b.reason in FAILED_GATES for b in self.because)

    @property
    def measured(self) -> bool:
        """Whether the race could be judged: not interrupted, not uncapturable, not noise."""
        if self.receipt is None:
            return False
        missing = {Reason.INCOMPLETE, Reason.UNCAPTURABLE, Reason.NOISE}
        return not any(b.reason in missing for b in self.because)
