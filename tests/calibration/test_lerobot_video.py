import sys
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from flashrt.calibration.lerobot import open_dataset, robot_frames
from flashrt.document.problem import InputError
from flashrt_runtime.reason import Reason, Refusal

CAMERA, VIDEO = "observation.image", "videos/observation.image/chunk-000/file-000.mp4"


def encode(path: Path, frames: list[np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=5)
        stream.width, stream.height, stream.pix_fmt = 96, 96, "yuv444p"
        for pixels in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())


def nearest(pixels: np.ndarray, images: list[np.ndarray]) -> int:
    wide = pixels.astype(int)
    return int(np.argmin([np.abs(wide - other).mean() for other in images]))


def test_a_frame_of_a_video_is_the_frame_of_the_simulation(sample: Path) -> None:
    film, still = open_dataset(sample / "pusht_v30_video"), open_dataset(sample / "pusht_v30")
    images = [still.frame(i).images[CAMERA] for i in range(97)]
    for index in (0, 1, 13, 14, 40, 95, 96):  # first and last of episodes that share one file
        pixels = film.frame(index).images[CAMERA]
        assert nearest(pixels, images) == index
        assert np.abs(pixels.astype(int) - images[index]).mean() < 1
    assert film.ids == still.ids


def test_a_video_for_each_episode(robot: Any, sample: Path) -> None:
    data, still = robot("pusht_v21"), open_dataset(sample / "pusht_v21")
    images = [still.frame(i).images[CAMERA] for i in range(97)]
    for episode in sorted(set(still.rows.episode.tolist())):
        frames = [images[i] for i in np.flatnonzero(still.rows.episode == episode)]
        encode(data.root / f"videos/chunk-000/{CAMERA}/episode_{episode:06d}.mp4", frames)
    data.feature(CAMERA, dtype="video")
    name = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
    data.info(video_path=name)
    film = open_dataset(data.root)
    assert [nearest(film.frame(i).images[CAMERA], images) for i in (0, 13, 14, 96)] == [
        0,
        13,
        14,
        96,
    ]


def test_frames_are_drawn_from_video(sample: Path) -> None:
    split = robot_frames(open_dataset(sample / "pusht_v30_video"), samples=4, held_out=2)
    assert len({frame.digest for frame in split.calibration + split.held_out}) == 6


def test_without_a_decoder_the_extra_is_named(
    sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(Refusal) as caught:
        open_dataset(sample / "pusht_v30_video")
    assert caught.value.reason is Reason.HOST
    assert "`video` extra" in str(caught.value)
    assert open_dataset(sample / "pusht_v30").frame(0).images[CAMERA].any()


def test_bytes_that_are_not_a_video(robot: Any) -> None:
    data = robot("pusht_v30_video")
    (data.root / VIDEO).write_bytes(b"#EXTM3U\n#EXTINF:1,\nfile:///secret.ts\n")
    assert data.wrong(VIDEO, f"$.{CAMERA}", "cannot be decoded", Reason.SCHEMA)


def test_a_video_that_is_not_there(robot: Any) -> None:
    data = robot("pusht_v30_video")
    (data.root / VIDEO).unlink()
    assert data.wrong("meta/info.json", "$.video_path", VIDEO, Reason.SCHEMA)


def test_a_video_that_ends_before_the_episode(robot: Any, sample: Path) -> None:
    data = robot("pusht_v30_video")
    dataset = open_dataset(sample / "pusht_v30")
    encode(data.root / VIDEO, [dataset.frame(i).images[CAMERA] for i in range(20)])
    film = open_dataset(data.root)
    assert film.frame(10).images[CAMERA].any()
    with pytest.raises(InputError, match=r"no frame at 6\.000 s"):
        film.frame(30)


def test_a_video_of_another_size(robot: Any) -> None:
    data = robot("pusht_v30_video")
    data.feature(CAMERA, shape=[64, 64, 3])
    assert data.wrong(VIDEO, f"$.{CAMERA}", "the video is 96 x 96", Reason.SHAPE)


@pytest.mark.parametrize("start", [-1.0, float("nan"), float("inf"), None])
def test_a_start_that_is_no_time(robot: Any, start: float | None) -> None:
    data = robot("pusht_v30_video")
    key, file = f"videos/{CAMERA}/from_timestamp", "meta/episodes/chunk-000/file-000.parquet"
    data.table(lambda rows: rows[0].update({key: start}), file)
    assert data.wrong(file, f"$.{key}", "not a time in the video", Reason.SCHEMA)


def test_a_template_without_a_video_path(robot: Any) -> None:
    data = robot("pusht_v30_video")
    data.info(video_path=None)
    assert data.wrong("meta/info.json", "$.video_path", "a path", Reason.SCHEMA)
