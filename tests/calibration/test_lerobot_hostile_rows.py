"""Tables that are wrong: each is refused with the file, the column and the row."""

from typing import Any

import pyarrow as pa
import pytest

from flashrt_runtime.reason import Reason

STATE = "observation.state"
EPISODES = "meta/episodes/chunk-000/file-000.parquet"


@pytest.mark.parametrize("layout", ["pusht_v21", "pusht_v30"])
def test_a_data_file_that_is_not_there(robot: Any, layout: str) -> None:
    data = robot(layout)
    (data.root / data.first).unlink()
    file = "meta/episodes.jsonl" if layout == "pusht_v21" else EPISODES
    assert data.wrong(file, "$", f"names {data.first}", Reason.SCHEMA)


@pytest.mark.parametrize("file", ["meta/info.json", "meta/episodes.jsonl", "meta/tasks.jsonl"])
def test_a_metadata_file_that_is_not_there(robot: Any, file: str) -> None:
    data = robot("pusht_v21")
    (data.root / file).unlink()
    assert data.wrong(file, "$", "not in the dataset", Reason.SCHEMA)


def test_bytes_that_are_not_parquet(robot: Any) -> None:
    data = robot("pusht_v30")
    (data.root / data.first).write_bytes(b"PAR1 but not really")
    assert data.wrong(data.first, "$", "parquet", Reason.SCHEMA)


def test_a_truncated_parquet_file(robot: Any) -> None:
    data = robot("pusht_v30")
    whole = (data.root / data.first).read_bytes()
    (data.root / data.first).write_bytes(whole[: len(whole) // 2])
    assert data.wrong(data.first, "$", "parquet", Reason.SCHEMA)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_state_that_is_not_finite(robot: Any, bad: float) -> None:
    data = robot("pusht_v21")

    def spoil(rows: list[dict[str, Any]]) -> None:
        rows[3][STATE][1] = bad

    data.table(spoil)
    assert data.wrong(data.first, f"$.{STATE}", "row 3, frame 3 of episode 0", Reason.NONFINITE)


def test_a_time_that_is_not_finite(robot: Any) -> None:
    data = robot("pusht_v21")
    data.table(lambda rows: rows[1].update(timestamp=float("nan")))
    assert data.wrong(data.first, "$.timestamp", "row 1", Reason.NONFINITE)


@pytest.mark.parametrize("layout", ["pusht_v21", "pusht_v30"])
def test_a_frame_that_is_there_twice(robot: Any, layout: str) -> None:
    data = robot(layout)
    data.table(lambda rows: rows[4].update(frame_index=2))
    assert data.wrong(data.first, "$.frame_index", "frame 2 of episode 0", Reason.CONFLICT)


def test_a_frame_below_zero(robot: Any) -> None:
    data = robot("pusht_v21")
    data.table(lambda rows: rows[4].update(frame_index=-1))
    assert data.wrong(data.first, "$.frame_index", "below 0", Reason.SCHEMA)


@pytest.mark.parametrize("layout", ["pusht_v21", "pusht_v30"])
def test_a_task_without_a_text(robot: Any, layout: str) -> None:
    data = robot(layout)
    data.table(lambda rows: rows[0].update(task_index=9))
    assert data.wrong(data.first, "$.task_index", "task 9", Reason.CONFLICT)


def test_rows_of_an_episode_that_lies_elsewhere(robot: Any) -> None:
    data = robot("pusht_v21")
    data.table(lambda rows: rows[0].update(episode_index=3))
    assert data.wrong(data.first, "$.episode_index", "episode 3", Reason.CONFLICT)


@pytest.mark.parametrize("layout", ["pusht_v21", "pusht_v30"])
def test_fewer_rows_than_the_episode_is_long(robot: Any, layout: str) -> None:
    data = robot(layout)
    data.table(lambda rows: rows.pop(0))
    assert data.wrong(data.first, "$.episode_index", "13 rows", Reason.CONFLICT)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("episode_index", pa.array([0.5] * 14)),
        ("frame_index", pa.array([None, *range(1, 14)], pa.int64())),
        ("timestamp", pa.array(["0"] * 14)),
        (STATE, pa.array(["x"] * 14)),
        (STATE, pa.array([[1.0]] * 14, pa.list_(pa.float32()))),
        (STATE, pa.array([None] + [[1.0, 2.0]] * 13, pa.list_(pa.float32()))),
        (STATE, pa.array([[None, 1.0]] * 14, pa.list_(pa.float32()))),
        (STATE, None),
        ("task_index", None),
    ],
)
def test_a_column_of_another_kind(robot: Any, name: str, column: pa.Array | None) -> None:
    data = robot("pusht_v21")
    data.column(name, column)
    problem = data.refused().problems[0]
    assert problem.file.endswith(data.first)
    assert problem.path == f"$.{name}"
