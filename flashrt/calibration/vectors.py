"""Per-channel vectors of one frame, at the places where a scheme asked for more than one amax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flashrt.calibration.kinds import Address
from flashrt.calibration.statistic import Kind, Statistic
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy
    import torch


class Vectors:
    """``wanted`` says which kinds each place needs. One call adds one vector of its channels.

    Places that are handed one tensor share its vector, as they share its amax.
    """

    def __init__(self, wanted: Mapping[int, frozenset[Kind]]) -> None:
        self.wanted = wanted
        self._held: dict[tuple[int, Kind], torch.Tensor] = {}
        self._rows: dict[int, int] = {}
        self._shared: dict[Kind, torch.Tensor] = {}

    def clear(self) -> None:
        """Start a frame."""
        self._held, self._rows, self._shared = {}, {}, {}

    def start(self) -> None:
        """Start a tensor."""
        self._shared = {}

    def see(self, place: int, tensor: torch.Tensor, subject: str) -> None:
        """Add a tensor [..., width]: the maximum over its rows, or the sum of their squares.

        Raises :class:`Refusal` (SHAPE) for a width that is not that of the place's other calls.
        """
        import torch

        rows = tensor.reshape(-1, tensor.shape[-1] if tensor.dim() else 1)
        for kind in self.wanted[place]:
            vector = self._shared.get(kind)
            if vector is None:
                # squares in float64: those of a float32 are exact there
                amax = kind is Kind.AMAX
                vector = rows.abs().amax(dim=0) if amax else rows.double().square_().sum(dim=0)
                self._shared[kind] = vector
            held = self._held.get((place, kind))
            if held is not None:
                if held.shape != vector.shape:
                    what = f"{len(held)} channels in one call and {len(vector)} in another"
                    raise Refusal(Reason.SHAPE, what, subject=subject)
                vector = torch.maximum(held, vector) if kind is Kind.AMAX else held + vector
            self._held[(place, kind)] = vector
        self._rows[place] = self._rows.get(place, 0) + len(rows)

    def fold(
        self, place: int, statistic: Statistic, address: Address
    ) -> tuple[numpy.ndarray, int] | None:
        """The frame's values in groups, and the rows; ``None`` where the place saw nothing.

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
            return channels.reshape(-1, size).max(axis=1), self._rows[place]
        channels = vector.cpu().numpy()
        return channels.reshape(-1, size).sum(axis=1), self._rows[place]
