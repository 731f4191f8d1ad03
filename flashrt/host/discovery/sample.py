"""What is kept of a tensor that went by: which object it was, its shape, and a few of its rows."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

ROWS = 4  # at least so many rows are kept of a matrix that has them, and less than twice as many
_ITEMS = 5  # a tensor of this rank or more is a batch of volumes, not of rows


class Observed(NamedTuple):
    """A tensor as it was when it was seen.

    ``kept`` is a copy of some of it: rows spread evenly over each matrix of a batch (all, where
    there are few); of a tensor of rank five or more the first item, [1, …]. ``number`` tells
    tensors apart: equal numbers are one object with nothing written to it in between.
    """

    number: int
    kept: torch.Tensor
    shape: tuple[int, ...]
    contiguous: bool

    @property
    def rows(self) -> torch.Tensor:
        """What is kept, as rows [R, D]."""
        width = self.width
        return self.kept.view(-1, width) if width else self.kept.reshape(0, 1)

    @property
    def dtype(self) -> torch.dtype:
        """The tensor's dtype."""
        return self.kept.dtype

    @property
    def width(self) -> int:
        """The last dim, 1 for a scalar."""
        return self.shape[-1] if self.shape else 1

    def same(self, other: Observed | None) -> bool:
        """Whether both are one tensor object with nothing written to it in between."""
        return other is not None and self.number == other.number

    def alike(self, other: Observed | None) -> bool:
        """Whether both are one object, or have one shape and dtype and equal kept values."""
        import torch

        if other is None or self.shape != other.shape or self.dtype != other.dtype:
            return False
        return self.number == other.number or torch.equal(self.kept, other.kept)


class Sampler:
    """Turns tensors into :class:`Observed` and knows a tensor again while it is alive."""

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], int, Observed]] = {}
        self._indices: dict[tuple[int, torch.device], torch.Tensor] = {}
        self._count = 0

    def __call__(self, tensor: torch.Tensor) -> Observed:
        """The tensor as it is at this moment. Only some of its values are kept, so it may go."""
        key = id(tensor)
        known = self._known.get(key)
        # the version of an inference tensor is not counted
        version = -1 if tensor.is_inference() else tensor._version
        if known is not None and known[0]() is tensor and known[1] == version:
            return known[2]
        self._count += 1
        seen = Observed(
            self._count, self._keep(tensor), tuple(tensor.shape), tensor.is_contiguous()
        )
        self._known[key] = (weakref.ref(tensor), version, seen)
        return seen

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        rank = tensor.dim()
        if self._whole:
            return tensor.detach().clone()
        if rank in (2, 3):  # one operator: this runs for every tensor of the forward
            return tensor.index_select(-2, self._index(tensor.shape[-2], tensor.device))
        if rank >= _ITEMS:
            return tensor.detach()[:1].clone()
        if rank < 2:
            return tensor.detach().clone()
        flat = tensor.detach().flatten(0, -2)
        return flat.index_select(0, self._index(flat.shape[0], flat.device))

    def _index(self, count: int, device: torch.device) -> torch.Tensor:
        import torch

        index = self._indices.get((count, device))
        if index is None:
            index = torch.arange(0, count, max(1, count // ROWS), device=device)
            self._indices[count, device] = index
        return index
