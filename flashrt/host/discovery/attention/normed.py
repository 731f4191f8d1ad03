"""Queries or keys of one attention call traced back through rotation and norm to a projection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt.host.discovery.attention.heads import layouts, made
from flashrt.host.discovery.attention.norms import RmsNorm
from flashrt.host.discovery.attention.rotation import Tables, neighbours, pairs, turns, visible
from flashrt.host.discovery.attention.tap import Attended
from flashrt_runtime.reason import Because, Reason

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Rotated:
    """``before`` and ``after`` the rotation, both [B, T, H, D], and the norm that made before."""

    norm: RmsNorm
    before: torch.Tensor
    after: torch.Tensor
    tables: Tables

    @property
    def heads(self) -> int:
        """Heads before any are repeated."""
        return int(self.before.shape[2])


def readings(
    norms: Sequence[RmsNorm], attended: Attended, name: str, positions: int
) -> Iterator[tuple[RmsNorm, torch.Tensor, torch.Tensor]]:
    """Norms whose output has the shape of the call's query or key, with both as [B, T, H, D]."""
    batch, size = attended.call.query.shape[0], attended.call.query.shape[3]
    for norm in norms:
        if norm.child.output is None:
            continue
        tensor = norm.child.output.tensor
        heads = tensor.numel() // (batch * positions * size)
        if heads * batch * positions * size != tensor.numel() or not heads:
            continue
        if norm.width not in (size, heads * size):
            continue
        after = made(attended, name, heads, positions)
        for before in layouts(tensor, heads, size):
            if before.shape == after.shape:
                yield norm, before, after


def rotated_from(
    norms: Sequence[RmsNorm],
    attended: Attended,
    name: str,
    given: Mapping[str, Any],
    positions: int,
) -> Rotated | Because | None:
    """How the call's ``name`` (query or key) came to be; why it is no rotate-half; or ``None``."""
    nearly: Because | None = None
    for norm, before, after in readings(norms, attended, name, positions):
        for tables in pairs(given, positions, before.shape[3]):
            if turns(before, after, tables):
                if visible(before, after):
                    return Rotated(norm, before, after, tables)
                what = f"the tables turn nothing of its {name} here, so how they do was not seen"
                nearly = Because(Reason.AMBIGUOUS, what)
        nearly = nearly or _nearly(name, before, after)
    return nearly


def _nearly(name: str, before: torch.Tensor, after: torch.Tensor) -> Because | None:
    import torch

    if torch.equal(before, after):
        return Because(Reason.STRUCTURE, f"its {name} is normed and not rotated")
    if neighbours(before, after):
        what = f"the rotation of its {name} pairs neighbouring elements, not halves"
        return Because(Reason.STRUCTURE, what)
    return None
