from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from flashrt.calibration.lerobot import Dataset, open_dataset
from flashrt.document.problem import InputError
from flashrt_runtime.reason import Reason, Refusal

CAMERA, STATE = "observation.image", "observation.state"
TASKS = {
    "Push the T-shaped block onto the T-shaped target.",
    "Move around the block without touching it.",
    "Push the block to the left wall.",
}


@pytest.fixture(params=["pusht_v21", "pusht_v30"])
def dataset(request: pytest.FixtureRequest, sample: Path) -> Dataset:
    return open_dataset(sample / request.param)


def test_frames_are_counted_and_placed(dataset: Dataset) -> None:
    strata = dataset.strata
    assert len(strata) == 97
    assert {task for task, _ in strata} == TASKS
    episodes = [len({e for t, e in strata if t == task}) for task in sorted(TASKS)]
    assert episodes == [3, 2, 4]
    lengths = Counter(episode for _, episode in strata)
    for episode in lengths:
        places = [p for p, (_, e) in zip(dataset.positions, strata, strict=True) if e == episode]
        assert places == list(range(lengths[episode]))
    assert dataset.ids == sorted(dataset.ids)
    assert len(set(dataset.ids)) == 97


def test_a_frame_is_what_the_tables_hold(sample: Path) -> None:
    dataset = open_dataset(sample / "pusht_v21")
    index = dataset.ids.index("episode_000004#000003")
    frame = dataset.frame(index)
    table = pq.read_table(
        sample / "pusht_v21/data/chunk-000/episode_000004.parquet", partitioning=None
    )
    row = table.to_pylist()[3]
    assert frame.state.tolist() == row[STATE]
    assert frame.state.dtype == np.float32
    image = Image.open(pa.BufferReader(row[CAMERA]["bytes"]))
    assert (frame.images[CAMERA] == np.asarray(image)).all()
    assert frame.images[CAMERA].shape == (96, 96, 3)
    assert len(np.unique(frame.images[CAMERA])) > 10
    assert frame.strata == ("Move around the block without touching it.", "episode_000004")
    assert frame.record() == {
        "id": "episode_000004#000003",
        "digest": frame.digest,
        "positions": 1,
        "task": frame.task,
        "episode": "episode_000004",
        "index": 3,
    }


def test_both_layouts_hold_the_same_frames(sample: Path) -> None:
    old, new = (open_dataset(sample / name) for name in ("pusht_v21", "pusht_v30"))
    assert old.ids == new.ids
    assert [old.frame(i).digest for i in range(0, 97, 5)] == [
        new.frame(i).digest for i in range(0, 97, 5)
    ]
    assert old.source == "LeRobot v2.1 dataset pusht_v21"
    assert str(sample) not in new.source


def test_no_two_frames_have_one_content(dataset: Dataset) -> None:
    digests = [dataset.frame(i).digest for i in range(97)]
    assert len(set(digests)) == 97


def test_one_pixel_one_number_and_the_task_are_part_of_the_content(robot) -> None:
    data = robot("pusht_v21")
    before = open_dataset(data.root).frame(0).digest

    def move(rows) -> None:
        rows[0][STATE][0] += 1.0

    data.table(move)
    moved = open_dataset(data.root).frame(0).digest
    data.lines("meta/tasks.jsonl", lambda lines: lines[0].update(task="Push."))
    told = open_dataset(data.root).frame(0).digest

    def paint(rows) -> None:
        pixels = np.array(Image.open(pa.BufferReader(rows[0][CAMERA]["bytes"])))
        pixels[0, 0, 0] ^= 1
        sink = pa.BufferOutputStream()
        Image.fromarray(pixels).save(sink, format="PNG")
        rows[0][CAMERA]["bytes"] = sink.getvalue().to_pybytes()

    data.table(paint)
    painted = open_dataset(data.root).frame(0).digest
    assert len({before, moved, told, painted}) == 4


def test_rows_may_lie_in_any_order_and_in_many_row_groups(robot, sample: Path) -> None:
    data, before = robot("pusht_v30"), open_dataset(sample / "pusht_v30")
    data.table(lambda rows: rows.reverse())
    table = pq.read_table(data.root / data.first, partitioning=None)
    pq.write_table(table, data.root / data.first, row_group_size=7)
    after = open_dataset(data.root)
    assert after.ids == before.ids
    for index in (0, 6, 7, 50, 96):
        assert after.frame(index).digest == before.frame(index).digest


def test_episodes_may_lie_in_several_files(robot, sample: Path) -> None:
    data, before = robot("pusht_v30"), open_dataset(sample / "pusht_v30")
    table = pq.read_table(data.root / data.first, partitioning=None)
    late = pa.compute.greater(table.column("episode_index"), 4)
    (data.root / "data/chunk-001").mkdir()
    pq.write_table(table.filter(late), data.root / "data/chunk-001/file-002.parquet")
    pq.write_table(table.filter(pa.compute.invert(late)), data.root / data.first)

    def split(rows) -> None:
        for row in rows[5:]:
            row["data/chunk_index"], row["data/file_index"] = 1, 2

    data.table(split, "meta/episodes/chunk-000/file-000.parquet")
    after = open_dataset(data.root)
    assert after.ids == before.ids
    assert after.frame(90).digest == before.frame(90).digest


def test_a_file_that_changes_while_it_is_read_is_refused(robot) -> None:
    data = robot("pusht_v30")
    dataset = open_dataset(data.root)
    data.table(lambda rows: rows.insert(0, rows.pop(1)))
    assert dataset.frame(5).position == 5
    for index in (0, 1):
        with pytest.raises(InputError, match="changed"):
            dataset.frame(index)
    data.table(lambda rows: rows.clear())
    with pytest.raises(InputError, match="changed"):
        dataset.frame(5)


def test_moments_are_of_the_rows_that_are_named(dataset: Dataset) -> None:
    some = range(10, 60)
    mean, std = dataset.moments(some)
    state = dataset.rows.state[10:60].astype(np.float64)
    assert mean == pytest.approx(state.mean(axis=0), rel=1e-12)
    assert std == pytest.approx(state.std(axis=0), rel=1e-12)
    assert dataset.moments([*reversed(some)])[0].tobytes() == mean.tobytes()
    assert not np.allclose(mean, dataset.moments(range(97))[0])


def test_a_state_of_one_number_may_be_a_plain_column(robot) -> None:
    data = robot("pusht_v30")
    data.feature(STATE, shape=[1])
    data.column(STATE, pa.array(range(97), pa.float32()))
    assert open_dataset(data.root).frame(5).state.tolist() == [5.0]


def test_a_dataset_may_have_no_state(robot) -> None:
    data = robot("pusht_v30")
    features = open_dataset(data.root).info.features
    kept = {
        n: {"dtype": f.dtype, "shape": list(f.shape)} for n, f in features.items() if n != STATE
    }
    data.info(features=kept)
    assert open_dataset(data.root).frame(0).state.shape == (0,)


def test_without_pyarrow_the_extra_is_named(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(Refusal) as caught:
        open_dataset(sample / "pusht_v30")
    assert caught.value.reason is Reason.HOST
    assert "robot" in str(caught.value)


def test_without_pillow_the_extra_is_named(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = open_dataset(sample / "pusht_v30")
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(Refusal) as caught:
        dataset.frame(0)
    assert caught.value.reason is Reason.HOST
