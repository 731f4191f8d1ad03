"""Which tensors are the sum of two others, asked for all layers of a host together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from flashrt.host.discovery.sample import Observed

if TYPE_CHECKING:
    import torch

_ROUNDINGS = 16
_SKETCH_ROUNDINGS = 8

_Three = tuple[Observed, Observed, Observed]


class Sum(NamedTuple):
    """A tensor that may be what two others add up to; one of them may not have been seen."""

    total: Observed
    a: Observed
    b: Observed | None


class Told(NamedTuple):
    """Whether it is for the rows that are kept, element by element, and for the sum of all rows."""

    kept: bool
    whole: bool


def tell(sums: Sequence[Sum]) -> list[Told]:
    """The answer for each."""
    told = [Told(kept=False, whole=False)] * len(sums)
    groups: dict[Hashable, dict[int, _Three]] = {}
    for i, (total, a, b) in enumerate(sums):
        if b is not None and total.kept.shape == a.kept.shape == b.kept.shape:
            three = total, a, b
            kind = tuple([(x.shape, x.dtype, x.kept.device, x.sketch is None) for x in three])
            groups.setdefault(kind, {})[i] = three
    for same in groups.values():
        every = list(same.values())
        if all(x.sketch is not None for x in every[0]) and every[0][0].kept.numel():
            whole = _whole(every).tolist()
        else:
            whole = [total.sums(a, b) for total, a, b in every]
        for i, *both in zip(same, _kept(every).tolist(), whole, strict=True):
            told[i] = Told(*both)
    return told


def _kept(same: Sequence[_Three]) -> torch.Tensor:
    """Bool [sums]."""
    import torch

    total, a, b = (torch.stack([x.kept for x in each]) for each in zip(*same, strict=True))
    off = (total - (a + b)).abs()
    most = _ROUNDINGS * torch.finfo(total.dtype).eps * (a.abs() + b.abs()) + 1e-30
    return (off <= most).reshape(len(same), -1).all(1)


def _whole(same: Sequence[_Three]) -> torch.Tensor:
    """Bool [sums]: :meth:`Observed.sums` of each."""
    import torch

    columns = list(zip(*same, strict=True))
    kept = torch.stack([x.kept for x in columns[0]]).reshape(len(same), -1)
    total, a, b = (
        torch.stack([x.sketch for x in each if x.sketch is not None]) for each in columns
    )
    rows = sum(same[0][0].shape[:-1]) ** 0.5
    size = kept.abs().amax(1).double() * rows + total.abs().amax(1).double()
    off = (total - (a + b)).abs().amax(1)
    return off <= _SKETCH_ROUNDINGS * torch.finfo(kept.dtype).eps * size
