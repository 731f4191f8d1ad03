"""The three states of a cell, in the order of what they promise."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What a receipt earned."""

    UNKNOWN = "unknown"
    SUPPORTED_CORRECT = "supported_correct"
    CERTIFIED_FAST = "certified_fast"

    @property
    def order(self) -> int:
        """0 promises least."""
        return list(State).index(self)

    def meets(self, required: State) -> bool:
        """Whether this promises at least what is required."""
        return self.order >= required.order
