"""NVFP4: e2m1 values, two a byte, an e4m3 scale a block of 16, a float32 scale a tensor.

A real value is ``e2m1 × (block scale / global scale)``. Activations are rounded to the same format
in the call: the block's scale from its own 16 values, the global scale given by a checkpoint or
taken from the row. Products and sums are float32; a CPU has no FP4 arithmetic.
"""

from __future__ import annotations

import torch
from flashrt_runtime.impls.shared.pieces import pieces_product
from flashrt_runtime.impls.shared.rows import BLOCK, realised

SIZE = 16
LARGEST = 6.0
LARGEST_SCALE = 448.0
# What a block whose scale rounds to zero gets; the format's writers do the same.
LEAST_SCALE = 0.125
FEW = 16


def rounded(x: torch.Tensor) -> torch.Tensor:
    """``x`` in ±6 at the nearest e2m1 value, ties to the even one."""
    size = x.abs()
    step = torch.where(size < 2.0, 0.5, torch.where(size < 4.0, 1.0, 2.0))
    return (x / step).round() * step


def block_scales(x: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """The e4m3 scale of every block of ``x`` [R, K] as float32 [R, K / 16], times ``whole``."""
    largest = x.reshape(x.shape[0], -1, SIZE).abs().amax(-1)
    scale = (whole * (largest / LARGEST)).clamp(max=LARGEST_SCALE)
    scale = scale.to(torch.float8_e4m3fn).to(torch.float32)
    return torch.where(scale == 0.0, torch.full_like(scale, LEAST_SCALE), scale)


def global_scale(largest: torch.Tensor) -> torch.Tensor:
    """The global scale that puts the largest magnitude at the top of both formats; 1 for zeros."""
    found = LARGEST * LARGEST_SCALE / largest
    return torch.where(torch.isfinite(found), found, torch.ones_like(found))


def steps(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """``x`` [R, K] as e2m1 values [R, K / 16, 16] under effective block scales [R, K / 16]."""
    blocks = x.reshape(x.shape[0], -1, SIZE)
    return rounded((blocks / scale[:, :, None]).clamp(-LARGEST, LARGEST))


def pack(weight: torch.Tensor) -> list[torch.Tensor]:
    """``[codes uint8 [N, K / 2], scale e4m3 [N, K / 16], global scale [1]]`` of a dense matrix."""
    whole = global_scale(weight.abs().amax()).reshape(1)
    scale = block_scales(weight, whole)
    value = steps(weight, scale / whole).reshape(weight.shape)
    size = value.abs()
    index = torch.where(size <= 2.0, size * 2.0, torch.where(size == 6.0, 7.0, size + 2.0))
    code = index.to(torch.uint8) | (torch.signbit(value).to(torch.uint8) << 3)
    return [code[:, 0::2] | (code[:, 1::2] << 4), scale.to(torch.float8_e4m3fn), whole]


def _value(code: torch.Tensor) -> torch.Tensor:
    # 0 .5 1 1.5 2 3 4 6 by arithmetic, which a compiler keeps in registers; a table it would not.
    index = (code & 7).to(torch.float32)
    size = 0.5 * index + 0.5 * (index - 4.0).clamp(min=0.0) + (index - 6.0).clamp(min=0.0)
    return size * (1.0 - 2.0 * (code >> 3).to(torch.float32))


def values(codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The e2m1 values of the low and of the high half of every byte, float32."""
    return _value(codes & 15), _value(codes >> 4)


def widen(parts: list[torch.Tensor]) -> torch.Tensor:
    """The float32 matrix [n, K] of some rows: ``[codes, effective block scale]`` of those rows."""
    codes, scale = parts
    both = torch.stack(values(codes), -1).reshape(scale.shape[0], -1, SIZE)
    return (both * scale[:, :, None]).reshape(scale.shape[0], -1)


def dense(packed: list[torch.Tensor]) -> torch.Tensor:
    """The whole float32 matrix [N, K]: for evidence, never for a product."""
    return widen([packed[0], effective(packed)])


def effective(packed: list[torch.Tensor]) -> torch.Tensor:
    """Block scales over the global one, float32 [N, K / 16]."""
    return packed[1].to(torch.float32) / packed[2]


def product(x: torch.Tensor, packed: list[torch.Tensor], how: str) -> torch.Tensor:
    """Round ``x`` [M, K] to NVFP4 and multiply: [M, N] float32.

    ``packed`` is :func:`pack`'s, then the activations' global scale [1] when ``how`` is
    ``local``; ``row`` takes one from each row. A row with a NaN or an infinity comes out as NaN.
    """
    nothing = (x - x).sum(-1, keepdim=True)
    whole = packed[3] if how == "local" else global_scale(x.abs().amax(-1, keepdim=True))
    scale = block_scales(x, whole) / whole
    seen = realised((steps(x, scale) * scale[:, :, None]).reshape(x.shape))
    if type(x) is not torch.Tensor and x.shape[0] <= FEW:
        return _few(seen, packed) + nothing
    return pieces_product(seen, [packed[0], effective(packed)], widen) + nothing


def product_weight_only(x: torch.Tensor, packed: list[torch.Tensor], how: str) -> torch.Tensor:
    """``x`` [M, K] float32, as it is, times the matrix of :func:`pack`: [M, N] float32.

    ``how`` is always ``blocks``.
    """
    if type(x) is not torch.Tensor and x.shape[0] <= FEW:
        return _few(x, packed)
    return pieces_product(x, [packed[0], effective(packed)], widen)


def _few(x: torch.Tensor, packed: list[torch.Tensor]) -> torch.Tensor:
    """The product of few rows as one loop over the bytes, which a compiler fuses."""
    rows, width = x.shape
    out = packed[0].shape[0]
    scale = realised(effective(packed))[:, :, None]
    low, high = values(packed[0].reshape(out, width // SIZE, SIZE // 2))
    pairs = x.reshape(rows, 1, width // SIZE, SIZE // 2, 2)
    even, odd = realised(pairs[..., 0]), realised(pairs[..., 1])
    block = next(size for size in range(min(rows, BLOCK), 0, -1) if rows % size == 0)
    shape = (rows // block, block, 1, width // SIZE, SIZE // 2)
    even, odd = even.reshape(shape), odd.reshape(shape)
    parts = [
        ((even[:, i, None] * low + odd[:, i, None] * high) * scale).sum((-2, -1))
        for i in range(block)
    ]
    return torch.stack([part.reshape(rows // block, out) for part in parts], 1).reshape(rows, out)
