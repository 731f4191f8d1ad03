"""A tensor that one forward showed, held whole: the finders compare it element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


class Seen(NamedTuple):
    """``version`` counts in-place writes to it before it was seen; -1 where torch counts none."""

    tensor: torch.Tensor
    version: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Seen:
        """The tensor as it is at this moment."""
        return cls(tensor, -1 if tensor.is_inference() else tensor._version)

    def intact(self) -> bool:
        """Whether nothing was written to it since."""
        return self.version < 0 or self.tensor._version == self.version
