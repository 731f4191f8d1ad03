"""The specs' own gates, for the verifier to compare a receipt's thresholds with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flashrt.gate.thresholds import SpecGates
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    from flashrt.spec import StructureSpec

GatesOf = Callable[[str, int], SpecGates | None]


def gates_of(spec: StructureSpec) -> SpecGates:
    """The gates that a loaded spec declares."""
    return SpecGates(
        digest=spec.digest,
        metric=spec.gates.metric,
        band_pass=spec.gates.bands["pass"],
        band_warn=spec.gates.bands["warn"],
        margin=spec.gates.margin,
    )


def catalog_gates(name: str, version: int) -> SpecGates | None:
    """The installed catalog's gates of ``name@version``; None when it has no such spec."""
    from flashrt.spec import load

    try:
        return gates_of(load(name, version))
    except Refusal as refusal:
        if refusal.reason in (Reason.STRUCTURE, Reason.RETIRED):
            return None
        raise
