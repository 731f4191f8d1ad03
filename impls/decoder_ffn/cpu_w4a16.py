"""decoder_ffn: NVFP4 weights, float32 activations, on the CPU."""

from __future__ import annotations

import torch
from flashrt_runtime.impls.shared import nvfp4
from flashrt_runtime.impls.shared import packed as stored
from flashrt_runtime.impls.shared.body import ffn_seam
from flashrt_runtime.impls.shared.operator import define_ffn

from flashrt_runtime.contract import BindRequest, BoundSeam

OPERATOR = "flashrt::decoder_ffn_cpu_w4a16"

define_ffn(OPERATOR, nvfp4.product_weight_only)


def bind(request: BindRequest) -> BoundSeam:
    """Pack the seam's weights, two values a byte and a scale a block of 16.

    Raises :class:`Refusal` before anything is changed: SHAPE for a width that whole blocks do not
    fill, and what the checks of a dense seam raise.
    """

    def pack(matrix: torch.Tensor, point: str) -> list[torch.Tensor]:
        stored.aligned(request, matrix.shape[1], nvfp4.SIZE)
        return nvfp4.pack(matrix)

    return ffn_seam(request, OPERATOR, "blocks", pack)
