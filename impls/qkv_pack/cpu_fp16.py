"""qkv_pack: the three float16 projections as one product on the CPU."""

from __future__ import annotations

from flashrt_runtime.impls.shared.operator import define_plain
from flashrt_runtime.impls.shared.siblings import siblings_seam

from flashrt_runtime.contract import BindRequest, BoundSeam

OPERATOR = "flashrt::qkv_pack_cpu_fp16"

define_plain(OPERATOR)


def bind(request: BindRequest) -> BoundSeam:
    """Pack q, k and v in the order of ``seam.members``. Raises :class:`Refusal`."""
    return siblings_seam(request, OPERATOR)
