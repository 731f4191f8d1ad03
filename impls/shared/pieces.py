"""Products that widen a packed matrix a piece at a time: it never stands in memory whole."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

PIECES = 4
Widen = Callable[[list[torch.Tensor]], torch.Tensor]


def pieces_product(x: torch.Tensor, packed: list[torch.Tensor], widen: Widen) -> torch.Tensor:
    """``x`` [M, K] float32 times a packed matrix [N, K]: [M, N] float32.

    ``packed`` are tensors whose first dim is N; ``widen`` gives the float32 matrix of some of
    their rows. A quarter of the matrix is float32 at one time, eager and captured alike.
    """
    rows = packed[0].shape[0]
    step = (rows + PIECES - 1) // PIECES
    parts = [
        F.linear(x, widen([tensor[low : low + step] for tensor in packed]))
        for low in range(0, rows, step)
    ]
    return torch.cat(parts, -1)
