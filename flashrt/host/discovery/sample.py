"""What is kept of a tensor that went by: which object it was, its shape, and a few of its rows."""

from __future__ import annotations

import math
import weakref
from typing import NamedTuple

import torch

ROWS = 4  # at least so many rows are kept of a matrix that has them, and less than twice as many
_ITEMS = 5  # a tensor of this rank or more is a batch of volumes, not of rows


class Observed(NamedTuple):
    """A tensor as it was when it was seen.

    ``kept`` is a copy of some of it: rows spread evenly over each matrix of a batch (all, where
    there are few), the first and the last among them; of a tensor of rank five or more the first
    item, [1, …]. ``number`` tells tensors apart: equal numbers are one object with nothing written
    to it in between. ``sum`` holds the sketch, once it is known: the sum [D] of all its rows, each
    under a sign of its own. What is linear in the rows is so in their sum, so it says something
    about every row.
    """

    number: int
    kept: torch.Tensor
    shape: tuple[int, ...]
    contiguous: bool
    sum: list[torch.Tensor] | None = None

    @property
    def sketch(self) -> torch.Tensor | None:
        """The signed sum of its rows; ``None`` where it has few rows, or nobody asked for it."""
        return self.sum[0] if self.sum else None

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
        if other is None or self.shape != other.shape or self.dtype != other.dtype:
            return False
        if self.number == other.number:
            return True
        return torch.equal(self.kept, other.kept) and self._sums_as(other)

    def sums(self, a: Observed, b: Observed) -> bool:
        """Whether the sum of all its rows is that of the rows of ``a`` and ``b``.

        False where that was not seen: one of them could have a sketch and has none.
        """
        if self.sketch is None or a.sketch is None or b.sketch is None:
            return not any(_sums_up(o.shape, o.dtype) and o.sketch is None for o in (self, a, b))
        both = a._replace(kept=a.kept + b.kept, sum=[a.sketch + b.sketch])
        return self._sums_as(both)

    def _sums_as(self, other: Observed) -> bool:
        """Whether the sketches agree but for the order in which a sum is rounded."""
        if self.sketch is None or other.sketch is None or not self.kept.numel():
            return True
        size = float(self.kept.abs().amax()) * sum(self.shape[:-1]) ** 0.5
        size += float(self.sketch.abs().amax())
        off = float((self.sketch - other.sketch).abs().amax())
        return off <= 8 * torch.finfo(self.dtype).eps * size


class Sampler:
    """Turns tensors into :class:`Observed` and knows a tensor again while it is alive."""

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], int, Observed]] = {}
        self._indices: dict[tuple[int, torch.device], torch.Tensor] = {}
        self._signs: dict[tuple[int, torch.dtype, torch.device], torch.Tensor] = {}
        self._count = 0

    def __call__(self, tensor: torch.Tensor, *, bare: bool = False) -> Observed | None:
        """The tensor as it is at this moment. Only some of its values are kept, so it may go.

        A ``bare`` one gets no sketch, unless it is seen again and then is not.

        ``None`` for one that has no rows to keep: sparse, nested, quantised, or of a kind of its
        own that cannot be indexed.
        """
        known = self._known.get(id(tensor))
        if known is None or known[0]() is not tensor:
            if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
                return None
            # the version of an inference tensor is not counted
            version = -1 if tensor.is_inference() else tensor._version
            return self._new(tensor, self._keep(tensor), version, bare=bare)
        _, version, seen = known
        if version < 0:
            return self._uncounted(tensor, seen)
        kept = self._keep(tensor)
        if tensor._version != version or not torch.equal(kept, seen.kept):
            return self._new(tensor, kept, tensor._version, bare=bare)
        if not (bare or seen.sum):
            self.sum(tensor, seen)
        return seen

    def sum(self, tensor: torch.Tensor, seen: Observed) -> None:
        """Fill in the sketch of a tensor to which nothing was written since it was seen."""
        if seen.sum == []:
            known = self._known[id(tensor)]
            written = known[2] is not seen or (known[1] >= 0 and known[1] != tensor._version)
            sketch = None if written else self._sketch(tensor)
            if sketch is not None:
                seen.sum.append(sketch)

    def _uncounted(self, tensor: torch.Tensor, seen: Observed) -> Observed:
        """What was seen, or the tensor anew where a write that torch does not count changed it."""
        kept, before = self._keep(tensor), seen.sketch
        if torch.equal(kept, seen.kept):
            sketch = None if before is None else self._sketch(tensor)
            if before is None or sketch is None or torch.equal(sketch, before):
                return seen
        return self._new(tensor, kept, -1, bare=False)

    def _new(
        self, tensor: torch.Tensor, kept: torch.Tensor, version: int, *, bare: bool
    ) -> Observed:
        self._count += 1
        seen = Observed(self._count, kept, tuple(tensor.shape), tensor.is_contiguous(), [])
        self._known[id(tensor)] = (weakref.ref(tensor), version, seen)
        if version < 0 or not bare:
            self.sum(tensor, seen)
        return seen

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        shape = tensor.shape
        rank = len(shape)
        if self._whole or rank < 2:
            return tensor.detach().clone()
        if rank >= _ITEMS:
            return tensor.detach()[:1].clone()
        if rank == 4:
            tensor = tensor.detach().flatten(0, -2)
            shape = tensor.shape
        index = self._indices.get((shape[-2], tensor.device))
        if index is None:
            index = self._index(shape[-2], tensor.device)
        return tensor.index_select(-2, index)  # one operator: it runs for every tensor

    def _index(self, count: int, device: torch.device) -> torch.Tensor:
        spread = list(range(0, count, max(1, count // ROWS)))
        spread += [count - 1] if spread and spread[-1] != count - 1 else []
        index = torch.tensor(spread, dtype=torch.int64, device=device)
        self._indices[count, device] = index
        return index

    def _sketch(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The signed sum of its rows [D]; ``None`` where it has too few, or is no such tensor."""
        if self._whole or not _sums_up(tensor.shape, tensor.dtype):
            return None
        rows = tensor.detach().flatten(0, -2)
        return signs(rows.shape[0], rows, self._signs) @ rows


def _sums_up(shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether a tensor is rows of which not every one is kept."""
    return len(shape) in (2, 3) and dtype.is_floating_point and math.prod(shape[:-1]) > ROWS


def signs(
    count: int,
    like: torch.Tensor,
    known: dict[tuple[int, torch.dtype, torch.device], torch.Tensor] | None = None,
) -> torch.Tensor:
    """``count`` signs, the same every time, of the dtype and on the device of ``like``."""
    known = {} if known is None else known
    key = (count, like.dtype, like.device)
    if key not in known:
        drawn = torch.Generator().manual_seed(count)
        some = torch.randint(0, 2, (count,), generator=drawn) * 2 - 1
        known[key] = some.to(device=like.device, dtype=like.dtype)
    return known[key]
