"""A frame of a video file, where a decoder (PyAV) is installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt.calibration.lerobot.folder import Place
from flashrt.calibration.lerobot.info import Feature
from flashrt.calibration.lerobot.picture import size_of
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy


LAST_SECOND = 1e8  # three years of video: a time that every container can hold


def decoder() -> Any:
    """PyAV. Raises :class:`Refusal` (HOST) where it is not installed."""
    try:
        import av
    except ImportError as error:
        raise Refusal(
            Reason.HOST,
            "this dataset keeps its images as video and no decoder is installed",
            do="install the `video` extra (PyAV)",
        ) from error
    return av


def frame_at(path: Path, second: float, fps: float, feature: Feature, at: Place) -> numpy.ndarray:
    """uint8 [height, width, 3]: the frame shown at ``second``, at most half a frame away.

    The file is read as MP4 through a handle, so that nothing in it can name another file. Raises
    :class:`InputError` for bytes that are not such a video, a time at which it has no frame, and
    a frame of another size than the feature says.
    """
    av = decoder()
    if not abs(second) <= LAST_SECOND:
        raise at.refuse(f"{second:g} s is no time in a video", reason=Reason.CONFLICT)
    nearest, distance = None, 0.5 / fps
    try:
        with open(path, "rb") as handle, av.open(handle, format="mp4") as container:
            if not container.streams.video:
                raise at.refuse(f"{path.name} has no video in it")
            stream = container.streams.video[0]
            container.seek(int(second / stream.time_base), stream=stream, backward=True)
            for frame in container.decode(stream):
                if frame.time is None:
                    continue
                if abs(frame.time - second) < distance:
                    nearest, distance = frame, abs(frame.time - second)
                if frame.time > second + 0.5 / fps:
                    break
            pixels = nearest.to_ndarray(format="rgb24") if nearest is not None else None
    except (av.FFmpegError, OSError, ValueError, OverflowError) as error:
        raise at.refuse(f"{path.name} cannot be decoded: {error}", "fetch it again") from error
    if pixels is None:
        raise at.refuse(f"{path.name} has no frame at {second:.3f} s", reason=Reason.CONFLICT)
    if pixels.shape[:2] != size_of(feature):
        what = f"the video is {pixels.shape[0]} x {pixels.shape[1]}, the feature {size_of(feature)}"
        raise at.refuse(what, "correct the feature's shape", Reason.SHAPE)
    return pixels
