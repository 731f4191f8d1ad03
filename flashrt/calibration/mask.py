"""Which positions of a frame count: padding is computed by the host and must not fit a scale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flashrt_runtime.contract import rows_of
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch


class Mask:
    """A frame's counted positions, applied to activations whose leading dims are the positions.

    ``counted`` is bool, flat or of the batch's shape, True where a position counts. Raises
    :class:`Refusal` (DTYPE) for anything but bool: a float mask means the opposite.
    """

    def __init__(self, counted: torch.Tensor) -> None:
        import torch

        if counted.dtype is not torch.bool:
            raise Refusal(
                Reason.DTYPE,
                f"the mask is {str(counted.dtype).removeprefix('torch.')}, not bool",
                do="give True where a position counts, e.g. attention_mask.bool()",
            )
        self._sizes = [size for size in counted.shape if size != 1]
        self._total = counted.numel()
        self._kept = {counted.device: counted.reshape(-1).nonzero().squeeze(1)}
        self.excludes = len(next(iter(self._kept.values()))) < self._total

    def fits(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's leading dims are the positions, all of them and in their order."""
        leading = [size for size in tensor.shape[:-1] if size != 1]
        if not self._sizes:
            return rows_of(tuple(tensor.shape)) == self._total
        if len(self._sizes) > 1:
            flat = bool(leading) and leading[0] == self._total
            return flat or leading[: len(self._sizes)] == self._sizes
        return any(math.prod(leading[:n]) == self._total for n in range(1, len(leading) + 1))

    def rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """The counted positions of a tensor that :meth:`fits`, [rows, width]."""
        width = tensor.shape[-1]
        kept = self._kept.get(tensor.device)
        if kept is None:
            kept = next(iter(self._kept.values())).to(tensor.device)
            self._kept[tensor.device] = kept
        split = tensor.reshape(self._total, -1, width)
        return split.index_select(0, kept).reshape(-1, width)
