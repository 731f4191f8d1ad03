"""Where someone is looking. Looking executes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from flashrt.lab.records.base import Record, Says


@dataclass(frozen=True)
class InspectionState(Record):
    """One selected position of an accepted sequence, and what is shown about it."""

    execution_sha256: Annotated[str | None, Says("The execution looked at; none before any.")]
    position: Annotated[int, Says("The selected position.", "position", least=0)]
    focus: Annotated[str, Says("The concept in focus, in the diagram and beside it.")]
    surface: Annotated[
        Literal["architecture", "observation"], Says("Whether declared or captured is shown.")
    ]
    observation: Annotated[str | None, Says("The captured value that is shown.")] = None
    journey: Annotated[str | None, Says("The walk through the system that is replayed.")] = None
