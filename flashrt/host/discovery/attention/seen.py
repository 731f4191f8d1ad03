"""A tensor that one forward showed, held whole: the finders compare it element by element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def _version(tensor: torch.Tensor) -> int:
    # the version of an inference tensor is not counted
    return -1 if tensor.is_inference() else tensor._version


@dataclass(frozen=True)
class Seen:
    """``version`` counts in-place writes to it before it was seen."""

    tensor: torch.Tensor
    version: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Seen:
        """The tensor as it is at this moment."""
        return cls(tensor, _version(tensor))

    def intact(self) -> bool:
        """Whether nothing was written to it since."""
        return _version(self.tensor) == self.version
