"""The three Triton kernels of decoder_ffn in e4m3. Imported only where Triton is installed.

Every width is a compile-time constant and the number of rows is not specialised, so that what is
compiled without a device is what a launch compiles. Scales are read from tensors on the device.
"""

from __future__ import annotations

import triton
import triton.language as tl

HOST = tl.constexpr(0)
DIRECT = tl.constexpr(1)
OFFSET = tl.constexpr(2)
SILU = tl.constexpr(0)


@triton.jit
def norm_quantise(
    x: tl.tensor,
    norm: tl.tensor,
    reciprocal: tl.tensor,
    out: tl.tensor,
    *,
    WIDTH: tl.constexpr,
    NORM: tl.constexpr,
    EPS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One row a program: RMSNorm in float32 (unless the host normed), then e4m3.

    ``x`` [M, WIDTH]; ``norm`` [WIDTH]; ``reciprocal`` [1] of the static scale; ``out`` [M, WIDTH].
    """
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    value = tl.load(x + row * WIDTH + columns, mask=inside, other=0.0).to(tl.float32)
    if NORM != HOST:
        mean_square = tl.sum(value * value, axis=0) / WIDTH
        gain = tl.load(norm + columns, mask=inside, other=0.0).to(tl.float32)
        if NORM == OFFSET:
            gain = gain + 1.0
        value = value * tl.rsqrt(mean_square + EPS) * gain
    steps = value * tl.load(reciprocal)
    clamped = tl.clamp(steps, -448.0, 448.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + row * WIDTH + columns, clamped.to(tl.float8e4nv), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def gated_product(
    x: tl.tensor,
    gate: tl.tensor,
    up: tl.tensor,
    gate_scale: tl.tensor,
    up_scale: tl.tensor,
    *,
    reciprocal: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    N: tl.constexpr,
    K: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """act(x · gateᵀ) · (x · upᵀ) in e4m3 at the next product's static scale.

    ``x`` [rows, K] and ``gate``, ``up`` [N, K] are e4m3; ``gate_scale``, ``up_scale`` [N] undo the
    scales of both operands; ``reciprocal`` [1]; ``out`` [rows, N] e4m3. K is whole blocks.
    """
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    left = m.to(tl.int64)[:, None] * K + k[None, :]
    right = n.to(tl.int64)[None, :] * K + k[:, None]
    opened = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    raised = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        a = tl.load(x + left + start, mask=m[:, None] < rows, other=0.0)
        g = tl.load(gate + right + start, mask=n[None, :] < N, other=0.0)
        u = tl.load(up + right + start, mask=n[None, :] < N, other=0.0)
        opened = tl.dot(a, g, opened, max_num_imprecise_acc=BLOCK_K)
        raised = tl.dot(a, u, raised, max_num_imprecise_acc=BLOCK_K)
    opened = opened * tl.load(gate_scale + n, mask=n < N, other=0.0)[None, :]
    raised = raised * tl.load(up_scale + n, mask=n < N, other=0.0)[None, :]
    if ACTIVATION == SILU:
        inner = opened
    else:
        inner = 1.5957691216057308 * (opened + 0.044715 * opened * opened * opened)
    hidden = opened / (1.0 + tl.exp(-inner)) * raised
    steps = hidden * tl.load(reciprocal)
    clamped = tl.clamp(steps, -448.0, 448.0, propagate_nan=tl.PropagateNan.ALL)
    place = m.to(tl.int64)[:, None] * N + n[None, :]
    inside = (m[:, None] < rows) & (n[None, :] < N)
    tl.store(out + place, clamped.to(tl.float8e4nv), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def product(
    x: tl.tensor,
    weight: tl.tensor,
    scale: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    *,
    N: tl.constexpr,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """x · weightᵀ times ``scale`` [N], stored in the dtype of ``out``.

    ``x`` [rows, K] and ``weight`` [N, K] are e4m3; ``out`` [rows, N]. K is whole blocks.
    """
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    left = m.to(tl.int64)[:, None] * K + k[None, :]
    right = n.to(tl.int64)[None, :] * K + k[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        a = tl.load(x + left + start, mask=m[:, None] < rows, other=0.0)
        b = tl.load(weight + right + start, mask=n[None, :] < N, other=0.0)
        total = tl.dot(a, b, total, max_num_imprecise_acc=BLOCK_K)
    total = total * tl.load(scale + n, mask=n < N, other=0.0)[None, :]
    place = m.to(tl.int64)[:, None] * N + n[None, :]
    inside = (m[:, None] < rows) & (n[None, :] < N)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=inside)
