"""decoder_ffn: int8 weights per output channel and static int8 activations on the CPU."""

from __future__ import annotations

from flashrt_runtime.impls.shared import int8
from flashrt_runtime.impls.shared import request as asked
from flashrt_runtime.impls.shared.body import ffn_seam
from flashrt_runtime.impls.shared.operator import define_ffn
from flashrt_runtime.impls.shared.processor import Processor

from flashrt_runtime.contract import BindRequest, BoundSeam

OPERATOR = "flashrt::decoder_ffn_cpu_int8"

define_ffn(OPERATOR, int8.product_static)


def bind(request: BindRequest) -> BoundSeam:
    """Pack the seam's weights. Raises :class:`Refusal` before anything is changed."""
    how = int8.kernel(request.form, Processor.here())
    return ffn_seam(
        request,
        OPERATOR,
        how,
        lambda matrix, point: int8.pack_static(matrix, how, asked.scale(request, point)),
        notes={"reduce_range": int8.reduces(how)},
        matrix_bytes=int8.packed_bytes,
    )
