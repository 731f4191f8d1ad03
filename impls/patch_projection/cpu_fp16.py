"""patch_projection: whole patches times the kernel, one float16 product on the CPU."""

from __future__ import annotations

from flashrt_runtime.impls.shared.operator import define_plain
from flashrt_runtime.impls.shared.patch import patch_seam

from flashrt_runtime.contract import BindRequest, BoundSeam

OPERATOR = "flashrt::patch_projection_cpu_fp16"

define_plain(OPERATOR)


def bind(request: BindRequest) -> BoundSeam:
    """Reshape the kernel to a matrix. Raises :class:`Refusal` before anything is changed."""
    return patch_seam(request, OPERATOR)
