"""An image of a row: the bytes of a PNG or JPEG inside the table, decoded and checked."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from flashrt.calibration.lerobot.folder import Place
from flashrt.calibration.lerobot.info import Feature
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy

_MODES = ("RGB", "RGBA", "L", "P", "1")


def size_of(feature: Feature) -> tuple[int, int]:
    """(height, width), from a shape with the three channels first or last."""
    first, *_, last = feature.shape if len(feature.shape) == 3 else (0, 0)
    if last in (1, 3, 4):
        return feature.shape[0], feature.shape[1]
    if first in (1, 3, 4):
        return feature.shape[1], feature.shape[2]
    return 0, 0


def decode(value: Any, feature: Feature, at: Place) -> numpy.ndarray:
    """uint8 [height, width, 3], from the ``struct<bytes, path>`` of a row.

    Raises :class:`InputError` for a value that is no such struct, bytes that are not a PNG or
    JPEG, and an image of another size than the feature says (looked at before it is decoded).
    """
    import numpy as np

    try:
        from PIL import Image
    except ImportError as error:
        what = "pillow is not installed, which decodes images"
        raise Refusal(Reason.HOST, what, do="install the `robot` extra") from error
    data = value.get("bytes") if isinstance(value, dict) else None
    if not isinstance(data, bytes) or not data:
        do = "write the images into the tables, as lerobot does"
        raise at.refuse("the image has no bytes in the table", do)
    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
            height, width = size_of(feature)
            if (image.height, image.width) != (height, width):
                what = (
                    f"the image is {image.height} x {image.width}, the feature {height} x {width}"
                )
                raise at.refuse(what, "correct the feature's shape", Reason.SHAPE)
            if image.mode not in _MODES:
                what = f"an image of mode {image.mode} has no 8-bit colours"
                raise at.refuse(what, "leave depth maps out", Reason.DTYPE)
            return np.array(image.convert("RGB"), dtype=np.uint8)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise at.refuse("the bytes are not a PNG or JPEG image", "write the image again") from error
