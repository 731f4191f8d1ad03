"""linear_proj: e4m3 weights as a checkpoint stores them, activations rounded as its format says."""

from __future__ import annotations

from flashrt_runtime.impls.shared import eight
from flashrt_runtime.impls.shared.eight_bind import EightBits
from flashrt_runtime.impls.shared.operator import define_linear

OPERATOR = "flashrt::linear_proj_fp8_packed"
BITS = EightBits(OPERATOR, "fp8")

define_linear(OPERATOR, eight.product)

bind = BITS.dense
bind_packed = BITS.stored
