"""Values that a boundary admits: normal, bounded, the cosines of shared angles, indices, ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flashrt.spec.dims import evaluate
from flashrt.spec.domain import Domain, DomainKind, Function

if TYPE_CHECKING:
    import torch


def values(
    domain: Domain,
    shape: Sequence[int],
    sizes: Mapping[str, int],
    source: torch.Generator,
    angles: dict[str, torch.Tensor],
) -> torch.Tensor:
    """A tensor of this shape whose values are in the domain: float32, or int64 for whole numbers.

    ``angles`` keeps the tables of a call by shape, so that its cosines and sines belong together.
    """
    import torch

    if domain.kind is DomainKind.NORMAL:
        return torch.randn(list(shape), generator=source)
    if domain.kind is DomainKind.UNIFORM:
        return domain.low + (domain.high - domain.low) * torch.rand(list(shape), generator=source)
    if domain.kind is DomainKind.NONPOSITIVE:
        return -torch.nn.functional.softplus(torch.randn(list(shape), generator=source))
    if domain.kind is DomainKind.ANGLE:
        key = str(list(shape))
        if key not in angles:
            half = torch.rand([*shape[:-1], (shape[-1] + 1) // 2], generator=source)
            angles[key] = (2.0 * math.pi * half).repeat(*[1] * (len(shape) - 1), 2)
        table = angles[key][..., : shape[-1]]
        return torch.cos(table) if domain.of is Function.COS else torch.sin(table)
    bound = evaluate(domain.bound, sizes)
    if domain.kind is DomainKind.INDEX:
        return torch.randint(bound, list(shape), generator=source)
    return _ranges(shape[0], bound, source)


def _ranges(rows: int, within: int, source: torch.Generator) -> torch.Tensor:
    """``rows`` sorted disjoint half-open ranges of ``within`` positions, none of them empty."""
    import torch

    if 2 * rows <= within + 1:
        points = torch.randperm(within + 1, generator=source)[: 2 * rows]
        return points.sort().values.reshape(rows, 2)
    starts = torch.randperm(within, generator=source)[:rows].sort().values
    return torch.stack([starts, starts + 1], dim=1)
