"""linear_proj: int8 weights as a checkpoint stores them, activations rounded as its format says."""

from __future__ import annotations

from flashrt_runtime.impls.shared import eight
from flashrt_runtime.impls.shared.eight_bind import EightBits
from flashrt_runtime.impls.shared.operator import define_linear

OPERATOR = "flashrt::linear_proj_int8_packed"
BITS = EightBits(OPERATOR, "int8")

define_linear(OPERATOR, eight.product)

bind = BITS.dense
bind_packed = BITS.stored
