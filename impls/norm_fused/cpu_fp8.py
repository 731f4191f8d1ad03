"""norm_fused: a float32 norm on the CPU that emits e4m3 under its readers' static scale."""

from __future__ import annotations

import torch
from flashrt_runtime.impls.shared import fp8
from flashrt_runtime.impls.shared import request as asked
from flashrt_runtime.impls.shared.norm import norm_seam, normed
from flashrt_runtime.impls.shared.operator import define

from flashrt_runtime.contract import BindRequest, BoundSeam

OPERATOR = "flashrt::norm_fused_cpu_fp8"


def _body(
    x: torch.Tensor, held: list[torch.Tensor], bias: torch.Tensor | None, recipe: str, seam: str
) -> torch.Tensor:
    return fp8.emit(normed(x, held[0], bias, recipe), held[1])


define(OPERATOR, "(Tensor x, Tensor[] held, Tensor? bias, str recipe, str seam) -> Tensor", _body)


def bind(request: BindRequest) -> BoundSeam:
    """Keep the norm's vectors and the scale of ``y``. Raises :class:`Refusal`."""
    scale = asked.scale(request, "y")
    return norm_seam(request, OPERATOR, [torch.full((1,), 1.0 / scale)], {"scale": repr(scale)})
