"""linear_proj: e4m3 weights as a checkpoint stores them, activations rounded as its format says."""

from __future__ import annotations

import torch
from flashrt_runtime.impls.shared import eight
from flashrt_runtime.impls.shared import packed as stored
from flashrt_runtime.impls.shared import request as asked
from flashrt_runtime.impls.shared.operator import define_linear

from flashrt_runtime.contract import BindRequest, BoundSeam, Reason, Refusal

OPERATOR = "flashrt::linear_proj_fp8_packed"

define_linear(OPERATOR, eight.product)


def bind(request: BindRequest) -> BoundSeam:
    """Pack the seam's dense weights. Raises :class:`Refusal` before anything is changed."""
    matrix = asked.weight(request, "weight")
    packed = eight.pack(matrix, "fp8")
    if request.form == "static":
        packed.append(torch.full((1,), asked.scale(request, "x")))
    return _seam(request, packed)


def bind_packed(request: BindRequest) -> BoundSeam:
    """Take the checkpoint's tensors as they are.

    Slots: ``weight`` e4m3 [N, K], ``weight_scale`` [N, 1] or [1], ``input_scale`` [1] in the
    form ``static``, ``bias`` [N] if there is one. Raises :class:`Refusal`: BINDING, DTYPE, LAYOUT,
    NONFINITE, DEAD.
    """
    levels = stored.tensor(request, "weight", torch.float8_e4m3fn, 2)
    _numbers(request, levels)
    rows = levels.shape[0]
    scale = stored.scale(request, "weight_scale", ((rows, 1), (1,))).reshape(-1)
    packed = [levels, scale]
    if request.form == "static":
        packed.append(stored.scale(request, "input_scale", ((1,),)))
    return _seam(request, packed)


def _numbers(request: BindRequest, levels: torch.Tensor) -> None:
    # e4m3 has no infinity; all bits but the sign are a NaN. Read as bytes: nothing is widened.
    bad = int(((levels.view(torch.uint8) & 0x7F) == 0x7F).sum())
    if bad:
        raise Refusal(
            Reason.NONFINITE,
            f"{bad} of {levels.numel()} e4m3 weights are NaN",
            subject=request.seam.id,
            do="repair the checkpoint",
        )


def _seam(request: BindRequest, packed: list[torch.Tensor]) -> BoundSeam:
    kernel = "fp8:tensor" if request.form == "static" else "fp8:token"
    width = packed[0].shape[1]
    return stored.packed_seam(request, OPERATOR, kernel, packed, eight.dense, width=width)
