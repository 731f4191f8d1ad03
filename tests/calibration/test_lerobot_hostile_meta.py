"""Metadata that is wrong: each is refused with the file and the field that say so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flashrt.calibration.lerobot import open_dataset
from flashrt_runtime.reason import Reason, Refusal

EPISODES = "meta/episodes/chunk-000/file-000.parquet"


def test_no_episode_files(robot: Any) -> None:
    data = robot("pusht_v30")
    (data.root / EPISODES).unlink()
    assert data.wrong("meta/episodes", "$", "no parquet file", Reason.EMPTY_CORPUS)


@pytest.mark.parametrize("key", ["total_episodes", "total_frames"])
@pytest.mark.parametrize("layout", ["pusht_v21", "pusht_v30"])
def test_totals_that_contradict_the_episodes(robot: Any, layout: str, key: str) -> None:
    data = robot(layout)
    data.info(**{key: 12})
    assert data.wrong("meta/info.json", f"$.{key}", "says 12", Reason.CONFLICT)


def test_an_episode_that_is_listed_twice_names_its_line(robot: Any) -> None:
    data = robot("pusht_v21")
    data.lines("meta/episodes.jsonl", lambda lines: lines.append(lines[2]))
    error = data.wrong("meta/episodes.jsonl", "$.episode_index", "episode 2", Reason.CONFLICT)
    assert error.problems[0].line == 10


def test_a_line_that_is_no_object(robot: Any) -> None:
    data = robot("pusht_v21")
    (data.root / "meta/episodes.jsonl").write_text('{"episode_index": 0\n')
    assert data.refused().problems[0].file.endswith("episodes.jsonl")


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"codebase_version": "v1.6"}, "$.codebase_version"),
        ({"codebase_version": None}, "$.codebase_version"),
        ({"fps": 0}, "$.fps"),
        ({"fps": True}, "$.fps"),
        ({"chunks_size": 0}, "$.chunks_size"),
        ({"total_frames": "97"}, "$.total_frames"),
        ({"features": []}, "$.features"),
        ({"features": {}}, "$.features"),
        ({"features": {"observation.state": {"dtype": "float32"}}}, "$.features.observation.state"),
        (
            {"features": {"observation.state": {"dtype": "string", "shape": [1]}}},
            "$.features.observation.state",
        ),
        ({"features": {"a/b": {"dtype": "image", "shape": [1]}}}, "$.features.a/b"),
        ({"features": {"x": 1}}, "$.features.x"),
    ],
)
def test_an_info_that_says_something_else(robot: Any, changes: dict[str, Any], path: str) -> None:
    data = robot("pusht_v21")
    data.info(**changes)
    problem = data.refused().problems[0]
    assert (problem.file.endswith("meta/info.json"), problem.path) == (True, path)


@pytest.mark.parametrize(
    ("file", "edit", "path"),
    [
        ("meta/episodes.jsonl", lambda x: x[1].update(length=0), "$.length"),
        ("meta/episodes.jsonl", lambda x: x[1].update(episode_index="1"), "$.episode_index"),
        ("meta/tasks.jsonl", lambda x: x[1].update(task=""), "$.task"),
        ("meta/tasks.jsonl", lambda x: x[1].update(task_index=0), "$.task_index"),
    ],
)
def test_a_line_that_says_nothing_usable(
    robot: Any, file: str, edit: Callable[..., None], path: str
) -> None:
    data = robot("pusht_v21")
    data.lines(file, edit)
    problem = data.refused().problems[0]
    assert problem.file.endswith(file)
    assert (problem.line, problem.path) == (2, path)


def test_a_task_table_without_tasks(robot: Any) -> None:
    data = robot("pusht_v30")
    pq.write_table(pa.table({"task_index": [0, 1, 2]}), data.root / "meta/tasks.parquet")
    problem = data.refused().problems[0]
    assert problem.file.endswith("meta/tasks.parquet")


def test_a_dataset_without_episodes(robot: Any) -> None:
    data = robot("pusht_v21")
    (data.root / "meta/episodes.jsonl").write_text("")
    data.info(total_episodes=0, total_frames=0)
    assert data.wrong("meta/info.json", "$", "no episodes", Reason.EMPTY_CORPUS)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as caught:
        open_dataset(tmp_path / "nowhere")
    assert caught.value.reason is Reason.EMPTY_CORPUS
