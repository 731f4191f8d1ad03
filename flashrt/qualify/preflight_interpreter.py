"""Makes Triton's interpreter round floats as a device does. Imported by the preflight's worker.

Its own down-casts truncate or lose the carry into the exponent; torch's do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Convert = Callable[[Any, Any, Any, Any], Any]


def torch_cast(original: Convert) -> Convert:
    """The interpreter's float conversion done by torch, where torch has both dtypes.

    Arguments and result are the interpreter's own: a numpy array holding ``source`` values, the
    two Triton dtypes and a rounding mode; the result is unsigned integers of the bits.
    """
    import numpy as np
    import torch

    known = {
        "fp32": torch.float32,
        "fp16": torch.float16,
        "bf16": torch.bfloat16,
        "fp64": torch.float64,
        "fp8e4nv": torch.float8_e4m3fn,
        "fp8e5": torch.float8_e5m2,
    }
    holders = {8: np.uint8, 16: np.int16, 32: np.int32, 64: np.int64}

    def convert(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        before, after = known.get(str(source)), known.get(str(target))
        if before is None or after is None:
            return original(data, source, target, rounding)
        bits = np.ascontiguousarray(data).view(holders[source.primitive_bitwidth])
        values = torch.from_numpy(bits.copy()).view(before).to(after)
        holder = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
        raw = values.contiguous().view(holder[target.primitive_bitwidth]).numpy()
        return raw.view(getattr(np, f"uint{target.primitive_bitwidth}")).reshape(data.shape)

    return convert


def install() -> None:
    """Replace the interpreter's float conversion in this process."""
    from triton.runtime import interpreter

    interpreter._convert_float = torch_cast(interpreter._convert_float)
