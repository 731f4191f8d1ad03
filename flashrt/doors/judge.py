"""One unit's eager gate: parity on the observations, and its ledger. Preflight, no verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.handle import Handle
    from flashrt_runtime.swap import Swap


@dataclass(frozen=True)
class Unit:
    """Swaps that are judged as one, and what their eager gate found.

    ``structure`` is the structure's id or, for negotiated chains, their kind
    (``norm_fused@1 -> linear_proj@1``): a producer is never judged without its readers. ``parity``
    are the metrics of this unit alone, ``together`` those of it beside the units that passed before
    it (``None`` where there were none); both are fit residuals, measured eagerly.
    """

    structure: str
    swaps: tuple[Swap, ...]
    parity: Mapping[str, Any]
    ledger: Mapping[str, Any]
    reasons: tuple[Because, ...]
    together: Mapping[str, Any] | None = None

    evidence: ClassVar[str] = "preflight (eager)"

    @property
    def passed(self) -> bool:
        """Whether no reason speaks against it."""
        return not self.reasons

    @property
    def chains(self) -> tuple[str, ...]:
        """The negotiated chains in it."""
        return tuple(dict.fromkeys(s.link.unit for s in self.swaps if s.link is not None))


def units_of(swaps: Sequence[Swap]) -> list[tuple[str, tuple[Swap, ...]]]:
    """Swaps by structure, in the order in which they were found; chains by their kind, whole."""
    chains: dict[str, list[Swap]] = {}
    for swap in swaps:
        if swap.link is not None:
            chains.setdefault(swap.link.unit, []).append(swap)
    kinds = {unit: _kind(parts) for unit, parts in chains.items()}
    groups: dict[str, list[Swap]] = {}
    for swap in swaps:
        name = swap.seam.structure if swap.link is None else kinds[swap.link.unit]
        groups.setdefault(name, []).append(swap)
    return [(name, tuple(group)) for name, group in groups.items()]


def _kind(parts: Sequence[Swap]) -> str:
    emits = sorted({s.seam.structure for s in parts if s.link is not None and s.link.emits})
    reads = sorted({s.seam.structure for s in parts if s.link is not None and not s.link.emits})
    return f"{' + '.join(emits)} -> {' + '.join(reads)}"


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
    ledger = handle.summary()
    parity, reasons = judge_outputs(outputs, floors, structure)
    if ledger["fell_back"]:
        told = f"{ledger['fallbacks']} fallbacks, first in {ledger['fell_back'][0]}"
        reasons.append(Because(Reason.FALLBACK, told, structure))
    missed = ledger["never_called"] or ledger.get("unread")
    if missed:
        told = f"{len(missed)} seams, first {missed[0]}"
        reasons.append(Because(Reason.NEVER_CALLED, told, structure))
    return Unit(structure, swaps, parity, ledger, tuple(reasons))


def judge_outputs(
    outputs: Sequence[tuple[torch.Tensor, torch.Tensor]], floors: Mapping[str, float], subject: str
) -> tuple[dict[str, Any], list[Because]]:
    """Parity metrics of ``(host, treated)`` outputs, and what speaks against the treated ones."""
    from flashrt.gate.metrics import SCALE_BOUNDS

    try:
        parity = _parity(outputs)
    except Refusal as refusal:
        return {}, [refusal.because()]
    reasons = []
    if parity["nonfinite"]:
        reasons.append(Because(Reason.NONFINITE, f"{parity['nonfinite']} values", subject))
    scale = parity["scale"]
    if scale is not None and not (SCALE_BOUNDS[0] <= scale <= SCALE_BOUNDS[1]):
        reasons.append(Because(Reason.SCALE, f"norm ratio {scale:.3f}", subject))
    return parity, reasons + _floors(parity, floors, subject)


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
