"""Fixed scales of a packed layer: numbers that float32 can divide by and multiply with."""

from __future__ import annotations

from flashrt.doors.packed.source import Form, Source
from flashrt_runtime.reason import Reason, Refusal

# A scale is multiplied with, or divides, at most 448 * 6 (an e4m3 block scale of e2m1 values), and
# at least 2**-9. Between these bounds neither that nor its reciprocal leaves the normal float32s;
# a checkpoint's own scales are nowhere near them.
LEAST, MOST = 2.0**-112, 2.0**112


def require_scales(source: Source, form: Form) -> None:
    """Refuse NONFINITE or DEAD: a scale outside 2^-112 to 2^112.

    NVFP4's block scales, e4m3 under a global one, may be 0 and are left to the impl.
    """
    import torch

    for name, tensor in form.slots.items():
        if not name.endswith("scale") or tensor.dtype == torch.float8_e4m3fn:
            continue
        value = tensor.to(torch.float64)
        if not bool(torch.isfinite(value).all()):
            what = f"{name} holds a NaN or an infinity"
            raise Refusal(Reason.NONFINITE, what, subject=source.path)
        if not bool(((value >= LEAST) & (value <= MOST)).all()):
            low, high = float(value.min()), float(value.max())
            what = f"{name} is from {low:.3g} to {high:.3g}: a scale is above zero, and its product"
            told = f"{what} with the format's values and its reciprocal are normal float32s"
            raise Refusal(Reason.DEAD, told, subject=source.path, do="quantise the model again")
