"""Tensors around an attention call brought to one layout, [B, T, H, D], without their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from flashrt.host.discovery.attention.tap import Attended, Child, Site


def layouts(tensor: torch.Tensor, heads: int, size: int) -> list[torch.Tensor]:
    """Every reading of a tensor as [B, T, heads, size]; none when its shape allows none."""
    shape = tensor.shape
    if tensor.dim() in (2, 3) and shape[-1] == heads * size and shape[-1] != size:
        wide = tensor.unflatten(-1, (heads, size))
        return [wide if tensor.dim() == 3 else wide[None]]
    if tensor.dim() == 3 and shape[-1] == size:
        tensor = tensor[None]
    if tensor.dim() == 2 and heads == 1 and shape[-1] == size:
        return [tensor[None, :, None]]
    if tensor.dim() == 3 and heads == 1:
        return [tensor[:, :, None]]
    if tensor.dim() != 4 or tensor.shape[-1] != size:
        return []
    found = [tensor] if tensor.shape[2] == heads else []
    return [*found, tensor.transpose(1, 2)] if tensor.shape[1] == heads else found


Way = tuple["torch.Tensor", "torch.Tensor", int]


def spread(source: torch.Tensor, to: torch.Tensor) -> list[Way]:
    """Source and argument ``to`` [B, H, T, D] as [B, T, H, D], older keys left out, and how often
    each own head is repeated in a row: every way that the shapes allow.
    """
    heads, positions, width = to.shape[1:]
    after = to.transpose(1, 2)
    found = []
    for times in (n for n in range(1, heads + 1) if heads % n == 0):
        for reading in layouts(source, heads // times, width):
            newest = after[:, -reading.shape[1] :]
            shape = (*reading.shape[:2], reading.shape[2] * times, reading.shape[3])
            if shape == tuple(newest.shape) and reading.shape[1] <= positions:
                found.append((reading, newest, times))
    return found


def as_is(source: torch.Tensor, to: torch.Tensor) -> bool:
    """Whether the argument ``to`` [B, H, T, D] is a source's heads, each repeated, value for value.

    Older keys are left out.
    """
    import torch

    for own, newest, times in spread(source, to):
        each = newest.unflatten(2, (own.shape[2], times))
        if torch.equal(own.unsqueeze(3).expand_as(each), each):
            return True
    return False


def made(
    attended: Attended, name: str, heads: int | None = None, last: int | None = None
) -> torch.Tensor:
    """query, key or value of a call as [B, T, heads, D]: repeats of a head and older keys left out.

    ``heads`` below the call's own takes every repeated head once; ``last`` the newest positions.
    """
    x: torch.Tensor = getattr(attended.call, name).transpose(1, 2)
    if heads and heads < x.shape[2] and x.shape[2] % heads == 0:
        x = x[:, :, :: x.shape[2] // heads]
    if last is not None and last < x.shape[1]:
        x = x[:, -last:]
    return x


def producer(site: Site, want: torch.Tensor, heads: int) -> Child | None:
    """The child whose whole output is ``want`` [B, T, heads, D], value for value."""
    import torch

    for child in site.children:
        if child.output is None or not child.output.intact():
            continue
        for reading in layouts(child.output.tensor, heads, want.shape[-1]):
            if reading.shape == want.shape and torch.equal(reading, want):
                return child
    return None
