"""Numbers and characters that a dataset's files can say and no frame can have."""

from typing import Any

import pytest

from flashrt_runtime.reason import Reason

CAMERA = "observation.image"
EPISODES = "meta/episodes/chunk-000/file-000.parquet"


@pytest.mark.parametrize("second", [1e18, 1e300, 3e8, float("nan"), float("inf"), -1.0])
def test_an_episode_that_begins_at_no_time_of_a_video(robot: Any, second: float) -> None:
    data, key = robot("pusht_v30_video"), f"videos/{CAMERA}/from_timestamp"
    data.table(lambda rows: rows[0].__setitem__(key, second), EPISODES)
    data.wrong("file-000.parquet", f"$.{key}", "not a time in the video", Reason.SCHEMA)


@pytest.mark.parametrize("second", [1e18, 1e30, -1e30])
def test_a_frame_at_no_time_of_a_video(robot: Any, second: float) -> None:
    data = robot("pusht_v30_video")
    data.table(lambda rows: rows[0].update(timestamp=second))
    data.wrong("file-000.mp4", f"$.{CAMERA}", "is no time in a video", Reason.CONFLICT)


@pytest.mark.parametrize("layout", ["pusht_v21", "pusht_v30_video"])
@pytest.mark.parametrize("fps", [10**400, 1e308, 1_000_001, 5e-324, 1e-300])
def test_a_rate_that_is_none(robot: Any, layout: str, fps: float) -> None:
    data = robot(layout)
    data.info(fps=fps)
    data.wrong("meta/info.json", "$.fps", "above 0", Reason.SCHEMA)


@pytest.mark.parametrize("file", ["meta/tasks.jsonl", "meta/info.json", "meta/episodes.jsonl"])
def test_half_a_character(robot: Any, file: str) -> None:
    data = robot("pusht_v21")
    path = data.root / file
    path.write_text(
        path.read_text().replace('": "', '": "\\ud800', 1).replace(": [", ': ["\\udcff",', 1)
    )
    assert "half a character" in data.refused().problems[0].what


def test_a_pair_of_halves_is_a_character(robot: Any) -> None:
    from flashrt.calibration.lerobot import open_dataset

    data = robot("pusht_v21")
    path = data.root / "meta/tasks.jsonl"
    path.write_text(path.read_text().replace('"task": "', '"task": "\\ud83e\\udd16 '))
    assert open_dataset(data.root).frame(0).task.startswith("\U0001f916 ")
