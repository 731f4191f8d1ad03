"""Other values of a window, and whether two outputs are the same to the last bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def changed(value: torch.Tensor) -> torch.Tensor | None:
    """Other values that the same place may hold; ``None`` where none is safely known.

    Floating values are reversed and scaled; integers change places, so that an index stays one
    that was given; a lone positive integer becomes the one below it.
    """
    if value.dtype.is_floating_point or value.dtype.is_complex:
        other = value.flatten().flip(0).reshape(value.shape) * 0.75
        return other if not _same(other, value) else other + 0.5
    flat = value.flatten()
    if flat.numel() > 1:
        other = flat.roll(1).reshape(value.shape)
        return other if not bool((other == value).all()) else None
    if flat.numel() == 1 and not value.dtype.is_signed:
        return None
    return value - 1 if flat.numel() == 1 and int(flat) > 0 else None


def agreeing(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where two tensors of one shape are equal, NaN being equal to NaN. Bool, of their shape."""
    same = left == right
    if left.dtype.is_floating_point or left.dtype.is_complex:
        same = same | (left.isnan() & right.isnan())
    return same


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return bool(agreeing(left, right).all())


def identical(left: Any, right: Any) -> bool:
    """Whether two outputs have one structure and equal tensors, NaN in the same places."""
    import torch
    from torch.utils._pytree import tree_flatten

    ours, tree = tree_flatten(left)
    theirs, other = tree_flatten(right)
    if tree != other:
        return False
    for one, two in zip(ours, theirs, strict=True):
        if isinstance(one, torch.Tensor) != isinstance(two, torch.Tensor):
            return False
        if not isinstance(one, torch.Tensor):
            if one is not two and one != two:
                return False
        elif one.dtype != two.dtype or one.shape != two.shape or not _same(one, two):
            return False
    return True
