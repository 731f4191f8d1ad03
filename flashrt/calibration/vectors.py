"""Per-channel vectors of one frame, at the places where a scheme asked for more than one amax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashrt.calibration.kinds import Address
from flashrt.calibration.statistic import Kind, Statistic
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy
    import torch


@dataclass(frozen=True)
class Folded:
    """One frame at one point: a value a group, over ``rows`` positions of ``width`` channels."""

    values: numpy.ndarray
    rows: int
    width: int


class Vectors:
    """``wanted`` says which kinds each place needs. One call adds one vector of its channels."""

    def __init__(self, wanted: Mapping[int, frozenset[Kind]]) -> None:
        self.wanted = wanted
        self._held: dict[tuple[int, Kind], torch.Tensor] = {}
        self._rows: dict[int, int] = {}

    def clear(self) -> None:
        """Start a frame."""
        self._held, self._rows = {}, {}

    def see(self, place: int, tensor: torch.Tensor, subject: str) -> None:
        """Add a tensor [..., width]: the maximum over its rows, or the sum of their squares.

        Raises :class:`Refusal` (SHAPE) for a width that is not that of the place's other calls.
        """
        import torch

        tensor = tensor.detach()  # a host may have gradients on, and always has in a thread
        rows = tensor.reshape(-1, tensor.shape[-1] if tensor.dim() else 1)
        for kind in self.wanted[place]:
            vector = rows.abs().amax(dim=0) if kind is Kind.AMAX else _squares(rows)
            held = self._held.get((place, kind))
            if held is not None:
                if held.shape != vector.shape:
                    what = f"{len(held)} channels in one call and {len(vector)} in another"
                    raise Refusal(Reason.SHAPE, what, subject=subject)
                vector = torch.maximum(held, vector) if kind is Kind.AMAX else held + vector
            self._held[(place, kind)] = vector
        self._rows[place] = self._rows.get(place, 0) + len(rows)

    def fold(self, place: int, statistic: Statistic, address: Address) -> Folded | None:
        """The frame's values in groups; ``None`` where the place saw nothing.

        float32 maxima, or float64 sums of squares. Raises :class:`Refusal` (SHAPE) for a width
        that is not whole blocks: padding one would invent channels.
        """
        vector = self._held.get((place, statistic.kind))
        if vector is None:
            return None
        width, size = len(vector), statistic.granularity.size(len(vector))
        if width % size:
            raise Refusal(
                Reason.SHAPE,
                f"{width} channels are not whole blocks of {size}",
                subject=address.name,
                do="choose a scheme that asks for another granularity here",
            )
        if statistic.kind is Kind.AMAX:
            channels = vector.float().cpu().numpy()
            return Folded(channels.reshape(-1, size).max(axis=1), self._rows[place], width)
        channels = vector.cpu().numpy()
        return Folded(channels.reshape(-1, size).sum(axis=1), self._rows[place], width)


def _squares(rows: torch.Tensor) -> torch.Tensor:
    """Sums of squares a channel, in float64: those of a float32 are exact there."""
    import torch

    # a copy even of float64: the host goes on to use what it handed us
    return rows.to(torch.float64, copy=True).square_().sum(dim=0)
