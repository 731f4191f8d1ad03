"""The per-sample vectors as a safetensors table, so that a reduction can be done again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashrt.document.problem import InputError
from flashrt_runtime.reason import Reason

if TYPE_CHECKING:
    import numpy

    from flashrt.calibration.kinds import Samples

FORMAT = "flashrt.calibration_table/1"


def table_bytes(samples: Samples) -> bytes:
    """``amax`` float32 [frames, points] and ``seen`` uint8 [frames, points], in receipt order."""
    from safetensors.numpy import save

    tensors = {"amax": samples.amax.astype("float32"), "seen": samples.seen.astype("uint8")}
    return save(tensors, metadata={"format": FORMAT})


def read_table(data: bytes, shape: Sequence[int]) -> tuple[numpy.ndarray, numpy.ndarray]:
    """``(amax, seen)`` of a table. Raises :class:`InputError` for bytes that are not one."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(data)
        amax, seen = tensors["amax"], tensors["seen"]
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(
            "calibration table", 1, "$", f"not a calibration table: {error}", reason=Reason.DIGEST
        ) from error
    if amax.shape != tuple(shape) or seen.shape != tuple(shape) or amax.dtype != "float32":
        what = f"its shape is {amax.shape}, the receipt's frames and points are {tuple(shape)}"
        raise InputError("calibration table", 1, "$", what, reason=Reason.DIGEST)
    return amax, seen.astype(bool)
