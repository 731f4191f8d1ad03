"""One unit's eager gate: parity on the observations, and its ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.handle import Handle
    from flashrt_runtime.swap import Swap


@dataclass(frozen=True)
class Unit:
    """A structure's swaps and what its gate found. ``parity`` are the metrics, a fit residual."""

    structure: str
    swaps: tuple[Swap, ...]
    parity: Mapping[str, Any]
    ledger: Mapping[str, Any]
    reasons: tuple[Because, ...]

    @property
    def passed(self) -> bool:
        """Whether no reason speaks against it."""
        return not self.reasons


def units_of(swaps: Sequence[Swap]) -> list[tuple[str, tuple[Swap, ...]]]:
    """Swaps by structure, in the order in which they were found."""
    groups: dict[str, list[Swap]] = {}
    for swap in swaps:
        groups.setdefault(swap.seam.structure, []).append(swap)
    return [(name, tuple(group)) for name, group in groups.items()]


def judge_unit(
    structure: str,
    swaps: tuple[Swap, ...],
    handle: Handle,
    outputs: Sequence[tuple[torch.Tensor, torch.Tensor]],
    floors: Mapping[str, float],
) -> Unit:
    """Compare ``(host, treated)`` outputs, read the ledger, and hold the floors.

    Outputs that cannot be compared (another shape or dtype than the host's) are the unit's reason.
    """
    from flashrt.gate.metrics import SCALE_BOUNDS

    ledger = handle.summary()
    try:
        parity = _parity(outputs)
    except Refusal as refusal:
        return Unit(structure, swaps, {}, ledger, (refusal.because(),))
    reasons = []
    if parity["nonfinite"]:
        reasons.append(Because(Reason.NONFINITE, f"{parity['nonfinite']} values", structure))
    if ledger["fell_back"]:
        told = f"{ledger['fallbacks']} fallbacks, first in {ledger['fell_back'][0]}"
        reasons.append(Because(Reason.FALLBACK, told, structure))
    if ledger["never_called"]:
        told = f"{len(ledger['never_called'])} seams, first {ledger['never_called'][0]}"
        reasons.append(Because(Reason.NEVER_CALLED, told, structure))
    scale = parity["scale"]
    if scale is not None and not (SCALE_BOUNDS[0] <= scale <= SCALE_BOUNDS[1]):
        reasons.append(Because(Reason.SCALE, f"norm ratio {scale:.3f}", structure))
    reasons += _floors(parity, floors, structure)
    return Unit(structure, swaps, parity, ledger, tuple(reasons))


def _floors(
    parity: Mapping[str, Any], floors: Mapping[str, float], structure: str
) -> list[Because]:
    from flashrt.gate.metrics import DIRECTIONS, meets

    found = []
    for name, bound in floors.items():
        value = parity.get(name)
        if name not in DIRECTIONS or not meets(name, value, bound):
            found.append(Because(Reason.FLOOR, f"{name} is {value}, floor {bound}", structure))
    return found


def _parity(outputs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, Any]:
    from flashrt.gate.parity import value_window

    windows = [
        value_window(f"observation-{i:05d}", host, treated)
        for i, (host, treated) in enumerate(outputs)
    ]
    agree = sum(int((h.argmax(-1) == t.argmax(-1)).sum()) for h, t in outputs)
    rows = sum(h.numel() // (h.shape[-1] if h.dim() else 1) for h, _ in outputs)
    known = [w for w in windows if w["cosine"] is not None]
    scales = [w["scale"] for w in known]
    return {
        "label": "fit_residual",
        "nonfinite": sum(w["nonfinite"] for w in windows),
        "cosine": min((w["cosine"] for w in known), default=None),
        "max_abs": max((w["max_abs"] for w in known), default=None),
        "scale": max(scales, key=lambda s: abs(s - 1.0), default=None),
        "top1_agreement": agree / rows,
    }
