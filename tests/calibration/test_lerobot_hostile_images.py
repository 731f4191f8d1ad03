"""Images that are none: each is refused with the file, the camera and the row."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from flashrt.calibration.lerobot import open_dataset
from flashrt_runtime.reason import Reason

CAMERA = "observation.image"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda image: image.update(bytes=b"not a picture"), "not a PNG or JPEG"),
        (lambda image: image.update(bytes=image["bytes"][:200]), "not a PNG or JPEG"),
        (lambda image: image.update(bytes=None), "no bytes"),
        (lambda image: image.update(bytes=b"GIF89a" + bytes(40)), "not a PNG or JPEG"),
    ],
)
def test_an_image_that_is_none(robot: Any, edit: Callable[..., None], said: str) -> None:
    data = robot("pusht_v21")
    data.table(lambda rows: edit(rows[0][CAMERA]))
    assert data.wrong(data.first, f"$.{CAMERA}[0]", said, Reason.SCHEMA)


def test_an_image_column_that_is_no_struct(robot: Any) -> None:
    data = robot("pusht_v21")
    data.column(CAMERA, pa.array(["a.png"] * 14))
    assert data.wrong(data.first, f"$.{CAMERA}[0]", "no bytes", Reason.SCHEMA)


def test_an_image_column_that_is_not_there(robot: Any) -> None:
    data = robot("pusht_v21")
    data.column(CAMERA, None)
    assert data.wrong(data.first, f"$.{CAMERA}[0]", "no such column", Reason.SCHEMA)


@pytest.mark.parametrize("shape", [[48, 48, 3], [96, 96], [3, 96, 97]])
def test_an_image_of_another_size(robot: Any, shape: list[int]) -> None:
    data = robot("pusht_v21")
    data.feature(CAMERA, shape=shape)
    assert data.wrong(data.first, f"$.{CAMERA}[0]", "96 x 96", Reason.SHAPE)


def test_channels_may_come_first(robot: Any) -> None:
    data = robot("pusht_v21")
    data.feature(CAMERA, shape=[3, 96, 96])
    assert open_dataset(data.root).frame(0).images[CAMERA].shape == (96, 96, 3)


def test_an_image_of_sixteen_bits(robot: Any) -> None:
    data = robot("pusht_v21")
    sink = pa.BufferOutputStream()
    Image.fromarray(np.full((96, 96), 4000, np.uint16)).save(sink, format="PNG")
    deep = sink.getvalue().to_pybytes()
    data.table(lambda rows: rows[0][CAMERA].update(bytes=deep))
    assert data.wrong(data.first, f"$.{CAMERA}[0]", "mode I;16", Reason.DTYPE)
