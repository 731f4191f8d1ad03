"""linear_proj: NVFP4 weights and activations rounded to NVFP4 in the call, on the CPU."""

from __future__ import annotations

import torch
from flashrt_runtime.impls.shared import nvfp4
from flashrt_runtime.impls.shared import packed as stored
from flashrt_runtime.impls.shared import request as asked
from flashrt_runtime.impls.shared.operator import define_linear

from flashrt_runtime.contract import BindRequest, BoundSeam, Reason, Refusal

OPERATOR = "flashrt::linear_proj_nvfp4_dynamic"

define_linear(OPERATOR, nvfp4.product)


def bind(request: BindRequest) -> BoundSeam:
    """Pack the seam's dense weights; a row's global scale is its own.

    Raises :class:`Refusal` before anything is changed: SHAPE for a width that is not a multiple
    of 16, and what the checks of a dense seam raise.
    """
    matrix = asked.weight(request, "weight")
    width = matrix.shape[1]
    stored.aligned(request, width, nvfp4.SIZE)
    packed = nvfp4.pack(matrix)
    return stored.packed_seam(request, OPERATOR, "row", packed, nvfp4.dense, width=width)


def bind_packed(request: BindRequest) -> BoundSeam:
    """Take NVFP4 tensors as they are, not one bit changed.

    Slots: ``weight_packed`` uint8 [N, K / 2] (low half first), ``weight_scale`` e4m3 [N, K / 16],
    ``weight_global_scale`` [1], ``input_global_scale`` [1], ``bias`` [N] if there is one. Raises
    :class:`Refusal`: SHAPE, BINDING, DTYPE, LAYOUT, NONFINITE, DEAD.
    """
    codes = stored.tensor(request, "weight_packed", torch.uint8, 2)
    rows, width = codes.shape[0], codes.shape[1] * 2
    stored.aligned(request, width, nvfp4.SIZE)
    blocks = stored.tensor(request, "weight_scale", torch.float8_e4m3fn, 2)
    if tuple(blocks.shape) != (rows, width // nvfp4.SIZE):
        raise Refusal(
            Reason.LAYOUT,
            f"'weight_scale' has shape {list(blocks.shape)}; "
            f"[{rows}, {width // nvfp4.SIZE}] was expected",
            subject=request.seam.id,
        )
    wide = blocks.to(torch.float32)
    if not bool((wide >= 0.0).all()):
        raise Refusal(
            Reason.NONFINITE, "'weight_scale' holds a NaN or a sign", subject=request.seam.id
        )
    whole = stored.scale(request, "weight_global_scale", ((1,),))
    seen = stored.scale(request, "input_global_scale", ((1,),))
    packed = [codes, blocks, whole, seen]
    return stored.packed_seam(request, OPERATOR, "local", packed, nvfp4.dense, width=width)
