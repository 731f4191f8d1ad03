"""Eight-bit weights as a checkpoint stores them, activations rounded as its format says.

``int8``: integers, a token's scale is its largest magnitude over 127.5, steps −128 to 127.
``fp8``: e4m3, a token's scale is its largest magnitude over 448. Sums are float32: an integer sum
is exact under 2**24 and rounded, never saturated, above.
"""

from __future__ import annotations

import torch
from flashrt_runtime.impls.shared.pieces import pieces_product
from flashrt_runtime.impls.shared.rows import realised, rows_product

FEW = 16
DTYPES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
# The magnitude that a token's largest value is put at.
TOP = {"int8": 127.5, "fp8": 448.0}
SMALLEST = torch.finfo(torch.float32).eps


def pack(weight: torch.Tensor, kind: str) -> list[torch.Tensor]:
    """``[levels [N, K], scale [N]]`` of a dense matrix, a scale a row; a row of zeros gets 1."""
    largest = 127.0 if kind == "int8" else 448.0
    scale = weight.abs().amax(dim=1) / largest
    scale = torch.where(scale > torch.finfo(torch.float32).tiny, scale, torch.ones_like(scale))
    levels = (weight / scale[:, None]).clamp(-largest, largest)
    levels = levels.round() if kind == "int8" else levels
    return [levels.to(DTYPES[kind]), scale]


def _steps(x: torch.Tensor, scale: torch.Tensor, kind: str) -> torch.Tensor:
    if kind == "int8":
        return (x / scale).clamp(-128.0, 127.0).round()
    limit = TOP["fp8"]
    return (x / scale).clamp(-limit, limit).to(torch.float8_e4m3fn).to(torch.float32)


def widen(parts: list[torch.Tensor]) -> torch.Tensor:
    """Levels of some rows as float32."""
    return parts[0].to(torch.float32)


def dense(packed: list[torch.Tensor]) -> torch.Tensor:
    """The whole float32 matrix [N, K]: for evidence, never for a product."""
    return packed[0].to(torch.float32) * packed[1][:, None]


def product(x: torch.Tensor, packed: list[torch.Tensor], how: str) -> torch.Tensor:
    """Round ``x`` [M, K] to eight bits and multiply: [M, N] float32.

    ``packed`` are levels [N, K] and their scale [N] or [1]. ``how`` is ``int8:token`` or
    ``fp8:token``; ``int8:tensor`` or ``fp8:tensor`` with the activations' scale [1] after those.
    A row with a NaN or an infinity comes out as NaN.
    """
    kind, _, granularity = how.partition(":")
    nothing = (x - x).sum(-1, keepdim=True)
    if granularity == "token":
        scale = x.abs().amax(-1, keepdim=True) / TOP[kind]
        scale = torch.where(scale == 0.0, torch.full_like(scale, SMALLEST), scale)
    else:
        scale = packed[2]
    seen = realised(_steps(x, scale, kind))
    if type(x) is not torch.Tensor and x.shape[0] <= FEW:
        total = rows_product(seen, packed[0])
    else:
        total = pieces_product(seen, [packed[0]], widen)
    return total * packed[1] * scale + nothing
