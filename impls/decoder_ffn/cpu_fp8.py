"""decoder_ffn: e4m3 weights per output channel and static e4m3 activations on the CPU."""

from __future__ import annotations

from flashrt_runtime.impls.shared import fp8
from flashrt_runtime.impls.shared import request as asked
from flashrt_runtime.impls.shared.body import ffn_seam
from flashrt_runtime.impls.shared.operator import define_ffn

from flashrt_runtime.contract import BindRequest, BoundSeam

OPERATOR = "flashrt::decoder_ffn_cpu_fp8"

define_ffn(OPERATOR, fp8.product)


def bind(request: BindRequest) -> BoundSeam:
    """Pack the seam's weights. Raises :class:`Refusal` before anything is changed."""
    how = fp8.kernel(request.form)
    return ffn_seam(
        request,
        OPERATOR,
        how,
        lambda matrix, point: fp8.pack(matrix, asked.scale(request, point)),
    )
