"""Products that read a low-precision matrix once and widen it in registers.

Written as pointwise × reduction, which Inductor turns into one loop over the matrix: the packed
weight is never materialised at the wider dtype. Made for few rows.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

BLOCK = 4


def realised(x: torch.Tensor) -> torch.Tensor:
    """``x``, computed once. Without it Inductor recomputes a pointwise producer per output."""
    contiguous = x.contiguous()
    return torch.as_strided(contiguous, contiguous.shape, contiguous.stride())


def rows_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``x`` [M, K] float32 times ``weight`` [N, K] of any storage dtype: [M, N] float32.

    Rows are taken in blocks of up to 4 that share one pass over the matrix. Called on plain
    tensors, with no compiler to fuse it, the same product is computed the ordinary way: nothing
    would keep the widened factors out of memory.
    """
    rows, width = x.shape
    wide = weight.to(torch.float32)
    if type(x) is torch.Tensor:
        return F.linear(x, wide)
    block = next(size for size in range(min(rows, BLOCK), 0, -1) if rows % size == 0)
    if block == 1:
        return (x.reshape(rows, 1, width) * wide).sum(-1)
    groups = x.reshape(rows // block, block, 1, width)
    parts = [(groups[:, i] * wide).sum(-1) for i in range(block)]
    return torch.stack(parts, 1).reshape(rows, weight.shape[0])
