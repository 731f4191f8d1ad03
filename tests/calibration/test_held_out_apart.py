"""What is held out or excluded shapes nothing, and a copy does not get on both sides."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flashrt.calibration.lerobot import RobotSplit, open_dataset, robot_frames
from flashrt_runtime.reason import Reason, Refusal

STATE = "observation.state"
DRAW = {"samples": 6, "held_out": 3}


def draw(root: Path, **options: Any) -> RobotSplit:
    return robot_frames(open_dataset(root), **(DRAW | options))


def outcome(root: Path, seed: int) -> RobotSplit | Refusal:
    try:
        return draw(root, seed=seed)
    except Refusal as error:
        return error


def extreme(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row[STATE] = [1e6] * len(row[STATE])


def again(data: Any, edit: Any = None, first: int = 0) -> None:
    """Every episode once more under another index, from row ``first`` on."""
    lines = data.root / "meta/episodes.jsonl"
    episodes = [json.loads(line) for line in lines.read_text().splitlines()]
    count, total = len(episodes), 0
    for index in range(count):
        table = pq.read_table(
            data.root / f"data/chunk-000/episode_{index:06d}.parquet", partitioning=None
        )
        rows = table.to_pylist()[first:]
        for place, row in enumerate(rows):
            row.update(episode_index=count + index, frame_index=place)
        if edit is not None:
            edit(rows)
        copy = data.root / f"data/chunk-000/episode_{count + index:06d}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), copy)
        episodes.append({**episodes[index], "episode_index": count + index, "length": len(rows)})
        total += len(rows)
    lines.write_text("".join(json.dumps(episode) + "\n" for episode in episodes))
    frames = json.loads((data.root / "meta/info.json").read_text())["total_frames"]
    data.info(total_episodes=2 * count, total_frames=frames + total)


@pytest.mark.parametrize("layout", ["pusht_v21", "pusht_v30"])
def test_excluded_and_held_out_states_do_not_normalise(robot: Any, layout: str) -> None:
    data = robot(layout)
    before = draw(data.root, exclude=["episode_000000"])
    judged = {frame.episode for frame in before.held_out}
    for path in sorted((data.root / "data").rglob("*.parquet")):
        data.table(
            lambda rows: extreme(
                [
                    row
                    for row in rows
                    if f"episode_{row['episode_index']:06d}" in judged | {"episode_000000"}
                ]
            ),
            path.relative_to(data.root).as_posix(),
        )
    after = draw(data.root, exclude=["episode_000000"])
    assert [v.tobytes() for v in after.moments()] == [v.tobytes() for v in before.moments()]
    assert after.workload()["state_moments"] == before.workload()["state_moments"]
    assert after.workload()["frames"] == before.workload()["frames"]


def test_the_receipts_workload_names_the_moments(robot: Any) -> None:
    data = robot("pusht_v21")
    before = draw(data.root).workload()
    kept = draw(data.root).calibration[0].episode
    name = f"data/chunk-000/{kept}.parquet"
    data.table(lambda rows: rows[-1].__setitem__(STATE, [9.0, 9.0]), name)
    after = draw(data.root).workload()
    assert before["state_moments"].startswith("sha256:")
    assert after["state_moments"] != before["state_moments"]


def relabelled(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row["task_index"] = (row["task_index"] + 1) % 3


def moved(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row[STATE] = [value + 1.0 for value in row[STATE]]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("edit", "first"), [(None, 0), (relabelled, 0), (None, 3)])
def test_an_episode_that_is_there_twice(robot: Any, seed: int, edit: Any, first: int) -> None:
    data = robot("pusht_v21")
    again(data, edit, first)
    count = open_dataset(data.root).info.episodes // 2
    split = outcome(data.root, seed)
    if isinstance(split, Refusal):
        assert split.reason is Reason.CONFLICT
        assert "copy" in split.do
        return
    episodes = split.dataset.rows.episode
    sides = [{int(episodes[i]) % count for i in split.rows}]
    sides.append({int(f.episode[-6:]) % count for f in split.held_out})
    assert not sides[0] & sides[1]


def test_episodes_that_differ_are_no_copies(robot: Any) -> None:
    data = robot("pusht_v21")
    again(data, moved)
    split = draw(data.root)
    assert len(split.held_out) == 3
    assert len({frame.episode for frame in split.calibration + split.held_out}) > 3


@pytest.mark.parametrize("same", [True, False])
def test_where_nothing_moves_the_pictures_tell(robot: Any, same: bool) -> None:
    data = robot("pusht_v21")

    def still(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row[STATE] = [0.5] * len(row[STATE])
            row["action"] = [0.5] * len(row["action"])

    for path in sorted((data.root / "data").rglob("*.parquet")):
        data.table(still, path.relative_to(data.root).as_posix())
    if not same:
        assert len(draw(data.root).held_out) == 3
        return
    again(data)
    outcomes = [outcome(data.root, seed) for seed in range(6)]
    reasons = {o.reason for o in outcomes if isinstance(o, Refusal)}
    assert reasons == {Reason.CONFLICT}


@pytest.mark.parametrize("seed", [2**53, -1])
def test_a_seed_that_no_receipt_can_hold(sample: Path, seed: int) -> None:
    with pytest.raises(Refusal) as caught:
        draw(sample / "pusht_v21", seed=seed)
    assert caught.value.reason is Reason.CONFLICT
