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


def emit(y: torch.Tensor, reciprocal: torch.Tensor) -> torch.Tensor:
    """``y`` [..., D] float32 as e4m3 under a static scale, of which ``reciprocal`` [1] is 1/scale.

    A value beyond the calibrated range is clamped to it; a NaN or an infinity comes out as NaN.
    """
    clamped = (y * reciprocal).clamp(-LARGEST, LARGEST)
    return (clamped + (y - y)).to(torch.float8_e4m3fn)


def product(x: torch.Tensor, packed: list[torch.Tensor], how: str) -> torch.Tensor:
    """``x`` [M, K] at the static e4m3 scale, multiplied: [M, N] float32.

    A float ``x`` is rounded here; an e4m3 one was, by a producer bound for this very scale. A value
    beyond the calibrated range is clamped to it; a row with a NaN or an infinity comes out as NaN.
    """
    levels, scale, reciprocal = packed
    taken = x if x.dtype == torch.float8_e4m3fn else emit(x, reciprocal)
    steps = realised(taken.to(torch.float32))
    if how == "widen":
        total = F.linear(steps, levels.to(torch.float32))
    else:
        total = rows_product(steps, levels)
    return total * scale
