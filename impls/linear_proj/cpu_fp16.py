"""linear_proj: fp16 weights on the CPU."""

from __future__ import annotations

from flashrt_runtime.impls.shared import fp16
from flashrt_runtime.impls.shared.body import linear_seam
from flashrt_runtime.impls.shared.operator import define_linear
from flashrt_runtime.impls.shared.processor import Processor

from flashrt_runtime.contract import BindRequest, BoundSeam

OPERATOR = "flashrt::linear_proj_cpu_fp16"

define_linear(OPERATOR, fp16.product)


def bind(request: BindRequest) -> BoundSeam:
    """Pack the seam's weights. Raises :class:`Refusal` before anything is changed."""
    how = fp16.kernel(request.form, Processor.here())
    return linear_seam(
        request,
        OPERATOR,
        how,
        lambda matrix, point: fp16.pack(matrix, how, request),
        matrix_bytes=fp16.packed_bytes,
    )
