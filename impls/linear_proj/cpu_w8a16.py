"""linear_proj: int8 weights per output channel, float32 activations, on the CPU."""

from __future__ import annotations

from flashrt_runtime.impls.shared import int8
from flashrt_runtime.impls.shared.body import linear_seam
from flashrt_runtime.impls.shared.operator import define_linear

from flashrt_runtime.contract import BindRequest, BoundSeam

OPERATOR = "flashrt::linear_proj_cpu_w8a16"

define_linear(OPERATOR, int8.product_weight_only)


def bind(request: BindRequest) -> BoundSeam:
    """Pack the seam's weights. Raises :class:`Refusal` before anything is changed."""
    return linear_seam(
        request, OPERATOR, "rows", lambda matrix, point: int8.pack_weight_only(matrix)
    )
