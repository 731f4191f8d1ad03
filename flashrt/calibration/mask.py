"""Which positions of a frame count: padding is computed by the host and must not fit a scale."""

from __future__ import annotations

import math
from itertools import permutations
from typing import TYPE_CHECKING

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch


class Mask:
    """A frame's counted positions, applied to activations whose leading dims are the positions.

    ``counted`` is bool, flat or of the batch's shape, True where a position counts. Raises
    :class:`Refusal`: DTYPE for anything but a tensor of bool (a float mask means the opposite),
    LAYOUT for one that is not dense, SHAPE for one without positions.
    """

    def __init__(self, counted: torch.Tensor) -> None:
        import torch

        if not isinstance(counted, torch.Tensor) or counted.dtype is not torch.bool:
            given = type(counted).__name__
            if isinstance(counted, torch.Tensor):
                given = str(counted.dtype).removeprefix("torch.")
            raise Refusal(
                Reason.DTYPE,
                f"the mask is {given}, not a tensor of bool",
                do="give True where a position counts, e.g. attention_mask.bool()",
            )
        if counted.layout is not torch.strided or counted.is_nested or counted.is_meta:
            raise Refusal(Reason.LAYOUT, "the mask is not dense", do="give a plain tensor of bool")
        if not counted.numel():
            raise Refusal(
                Reason.SHAPE, "the mask has no positions", do="give None where all of them count"
            )
        self._sizes = tuple(size for size in counted.shape if size != 1)
        self._total = counted.numel()
        self._kept = {counted.device: counted.reshape(-1).nonzero().squeeze(1)}
        self.excludes = len(next(iter(self._kept.values()))) < self._total
        self._fits: dict[tuple[int, ...], bool] = {}  # by leading dims

    def fits(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's leading dims are the positions, all of them and in their order.

        They are not where they could as well be read in another way: as many heads as tokens, or
        as many sequences. What a wrong axis would exclude is not padding.
        """
        leading = tuple(size for size in tensor.shape[:-1] if size != 1)
        if leading not in self._fits:
            self._fits[leading] = self._reads(leading) == [True]
        return self._fits[leading]

    def _reads(self, leading: tuple[int, ...]) -> list[bool]:
        """Every way to find the positions in ``leading``, True where that is by its first dims."""
        sizes, axes = self._sizes, range(len(leading))
        if not sizes:
            return [math.prod(leading) == self._total]
        runs = [  # the positions as one dim, or as several that follow each other
            start == 0
            for start in axes
            for stop in range(start + 1, len(leading) + 1)
            if math.prod(leading[start:stop]) == self._total
        ]
        if len(sizes) == 1:
            return runs
        flat = [start == 0 for start in axes if leading[start] == self._total]
        # batch and heads may be one dim, and what looks like heads the tokens
        merged = [False for _ in flat for size in leading if size in sizes]
        apart = [
            found == tuple(range(len(sizes)))
            for found in permutations(axes, len(sizes))
            if tuple(leading[axis] for axis in found) == sizes
        ]
        return [*flat, *merged, *apart]

    def rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """The counted positions of a tensor that :meth:`fits`, [rows, width]."""
        width = tensor.shape[-1]
        kept = self._kept.get(tensor.device)
        if kept is None:
            kept = next(iter(self._kept.values())).to(tensor.device)
            self._kept[tensor.device] = kept
        split = tensor.reshape(self._total, -1, width)
        return split.index_select(0, kept).reshape(-1, width)
