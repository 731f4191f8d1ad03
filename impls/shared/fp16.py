"""fp16 weights, float32 activations and sums."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from flashrt_runtime.impls.shared.processor import Processor
from flashrt_runtime.impls.shared.rows import rows_product

from flashrt_runtime.contract import BindRequest, Reason, Refusal

LARGEST = 65504.0


def kernel(form: str, processor: Processor) -> str:
    """Which product serves the form on this processor.

    ``rows``: widened in registers, for decode. ``fbgemm``: its packed fp16 matrix, the faster one
    for many rows on 256-bit vectors. ``widen``: a float32 product of the widened matrix, the
    faster one on 512-bit vectors and the one where fbgemm does not run.
    """
    if form == "decode":
        return "rows"
    if processor.wide or not _fbgemm_runs():
        return "widen"
    return "fbgemm"


def _fbgemm_runs() -> bool:
    """Whether this build has the entries and they execute here: presence is not enough."""
    space = torch.ops._quantized
    names = ("wrapped_fbgemm_pack_gemm_matrix_fp16", "wrapped_fbgemm_linear_fp16_weight")
    packer, product = (getattr(space, name, None) for name in names)
    if packer is None or product is None:
        return False
    try:
        one = product(torch.ones(1, 16), packer(torch.ones(16, 16)), torch.zeros(16), 16)
    except RuntimeError:
        return False
    return bool((one == 16.0).all())


def pack(weight: torch.Tensor, how: str, request: BindRequest) -> list[torch.Tensor]:
    """The matrix [N, K] packed for ``how``. Raises NONFINITE beyond fp16's range."""
    low, high = torch.aminmax(weight)
    largest = float(torch.maximum(-low, high))
    if not (largest <= LARGEST):
        raise Refusal(
            Reason.NONFINITE,
            f"a weight of magnitude {largest:g} is infinite in fp16 (largest {LARGEST:g})",
            subject=request.seam.id,
            do="keep the host here, or use a scheme that scales weights",
        )
    if how == "fbgemm":
        packed = torch.ops._quantized.wrapped_fbgemm_pack_gemm_matrix_fp16(weight)
        return [packed, torch.zeros(weight.shape[0])]
    return [weight.to(torch.float16)]


def product(x: torch.Tensor, packed: list[torch.Tensor], how: str) -> torch.Tensor:
    """``x`` [M, K] float32 times the packed matrix: [M, N] float32."""
    if how == "fbgemm":
        matrix, zeros = packed
        return torch.ops._quantized.wrapped_fbgemm_linear_fp16_weight(
            x, matrix, zeros, zeros.shape[0]
        )
    if how == "widen":
        return F.linear(x, packed[0].to(torch.float32))
    return rows_product(x, packed[0])


def packed_bytes(weight: torch.Tensor) -> int:
    """Bytes of the packed matrix, whichever product it is packed for."""
    return weight.numel() * 2
