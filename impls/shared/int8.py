"""int8 weights per output channel: with float32 activations (W8A16) or with static int8 ones."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from flashrt_runtime.impls.shared import onednn
from flashrt_runtime.impls.shared.processor import Processor
from flashrt_runtime.impls.shared.rows import realised, rows_product

WHOLE = 127
REDUCED = 63


def kernel(form: str, processor: Processor) -> str:
    """Which product of two int8 matrices serves the form on this processor.

    ``rows``: integers multiplied and summed as float32 in registers, exact while a sum is under
    2**24 and rounded, never saturated, above. ``int_mm``: 32-bit accumulation, exact. ``reduced``:
    a processor without VNNI adds pairs of products in 16 bits; weights of 7 bits keep every pair
    (2 × 255 × 63) inside them. ``widen``: where neither runs, a float32 product, exact as ``rows``.
    """
    if form == "decode":
        return "rows"
    if processor.vnni:
        return "int_mm"
    return "reduced" if onednn.runs() else "widen"


def reduces(how: str) -> str:
    """The receipt's note: whether the weights use 7 bits."""
    return "true" if how == "reduced" else "false"


def quantise(weight: torch.Tensor, largest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """``weight`` [N, K] as int8 in ±largest and the scale [N] that undoes it.

    A channel of zeros (or of magnitudes too small for a float32 scale) gets scale 1 and zeros.
    """
    scale = weight.abs().amax(dim=1) / largest
    scale = torch.where(scale > torch.finfo(torch.float32).tiny, scale, torch.ones_like(scale))
    levels = (weight / scale[:, None]).round().clamp(-largest, largest)
    return levels.to(torch.int8), scale


def pack_weight_only(weight: torch.Tensor) -> list[torch.Tensor]:
    """``[levels, scale]`` for :func:`product_weight_only`."""
    return list(quantise(weight, WHOLE))


def product_weight_only(x: torch.Tensor, packed: list[torch.Tensor], how: str) -> torch.Tensor:
    """``x`` [M, K] float32 times the int8 matrix: [M, N] float32. ``how`` is always ``rows``."""
    levels, scale = packed
    return rows_product(x, levels) * scale


def pack_static(weight: torch.Tensor, how: str, activation: float) -> list[torch.Tensor]:
    """``[levels, combined scale [N], reciprocal activation scale [1]]``.

    Scales are tensors, not numbers, so that every layer compiles to one kernel.
    """
    levels, scale = quantise(weight, REDUCED if how == "reduced" else WHOLE)
    reciprocal = torch.full((1,), 1.0 / activation)
    if how == "reduced":
        levels = onednn.pack(levels)
    return [levels, scale * activation, reciprocal]


def product_static(x: torch.Tensor, packed: list[torch.Tensor], how: str) -> torch.Tensor:
    """Quantise ``x`` [M, K] at the static scale and multiply: [M, N] float32.

    A value beyond the calibrated range is clamped to it. A row with a NaN or an infinity comes
    out as NaN: a cast would have hidden it.
    """
    levels, scale, reciprocal = packed
    nothing = (x - x).sum(-1, keepdim=True)
    steps = realised((x * reciprocal).round().clamp(-WHOLE, WHOLE))
    if how == "rows":
        total = rows_product(steps, levels)
    elif how == "int_mm":
        total = torch._int_mm(steps.to(torch.int8), levels.t()).to(torch.float32)
    elif how == "reduced":
        total = onednn.product(steps, levels, scale.shape[0])
    else:
        total = F.linear(steps, levels.to(torch.float32))
    return total * scale + nothing


def packed_bytes(weight: torch.Tensor) -> int:
    """Bytes of a packed matrix [N, K]: levels, combined scale and the reciprocal."""
    return weight.numel() + 4 * weight.shape[0] + 4
