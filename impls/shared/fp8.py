"""e4m3 weights per output channel and static e4m3 activations, multiplied and summed as float32.

A CPU has no fp8 arithmetic: this is the format's arithmetic, honestly slow, so that its accuracy
can be judged where its speed cannot.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from flashrt_runtime.impls.shared.rows import realised, rows_product

LARGEST = 448.0


def kernel(form: str) -> str:
    """``rows`` widens the matrix in registers, ``widen`` in memory before one product."""
    return "rows" if form == "decode" else "widen"


def pack(weight: torch.Tensor, activation: float) -> list[torch.Tensor]:
    """``[e4m3 matrix [N, K], combined scale [N], reciprocal activation scale [1]]``.

    A channel of zeros gets scale 1.
    """
    scale = weight.abs().amax(dim=1) / LARGEST
    scale = torch.where(scale > torch.finfo(torch.float32).tiny, scale, torch.ones_like(scale))
    levels = (weight / scale[:, None]).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
    return [levels, scale * activation, scale.new_full((1,), 1.0 / activation)]


def product(x: torch.Tensor, packed: list[torch.Tensor], how: str) -> torch.Tensor:
    """Round ``x`` [M, K] to e4m3 at the static scale and multiply: [M, N] float32.

    A value beyond the calibrated range is clamped to it; a row with a NaN or an infinity comes
    out as NaN.
    """
    levels, scale, reciprocal = packed
    nothing = (x - x).sum(-1, keepdim=True)
    clamped = (x * reciprocal).clamp(-LARGEST, LARGEST)
    steps = realised(clamped.to(torch.float8_e4m3fn).to(torch.float32))
    if how == "widen":
        total = F.linear(steps, levels.to(torch.float32))
    else:
        total = rows_product(steps, levels)
    return total * scale + nothing
