import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from flashrt.calibration.lerobot import RobotSplit, open_dataset, robot_frames
from flashrt.calibration.run import choose
from flashrt.calibration.sampling import quotas
from flashrt.document.schema import schema_text
from flashrt_runtime.reason import Reason, Refusal

HERE = Path(__file__).parent / "data"
RECORDS = json.loads(schema_text("records"))
WORKLOAD = {"$ref": "#/$defs/Workload", "$defs": RECORDS["$defs"]}
DATASET = open_dataset(HERE / "pusht_v30")


def draw(**settings: Any) -> RobotSplit:
    return robot_frames(DATASET, **settings)


def refused(reason: Reason, **settings: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        draw(**settings)
    assert caught.value.reason is reason
    return caught.value


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 20), st.integers(0, 8), st.integers(0, 50))
def test_no_episode_and_no_content_is_on_both_sides(samples: int, held_out: int, seed: int) -> None:
    split = draw(samples=samples, held_out=held_out, seed=seed)
    assert (len(split.calibration), len(split.held_out)) == (samples, held_out)
    sides = (split.calibration, split.held_out)
    assert not set.intersection(*({f.episode for f in side} for side in sides))
    assert not set.intersection(*({f.digest for f in side} for side in sides))
    if samples >= 3:
        assert len({f.task for f in split.calibration}) == 3


def test_tasks_have_their_exact_share_when_nothing_is_held_out() -> None:
    sizes = Counter(task for task, _ in DATASET.strata)
    for samples in (1, 3, 10, 50, 97):
        tasks = Counter(f.task for f in draw(samples=samples, held_out=0).calibration)
        assert all(abs(tasks[t] - q) < 1 for t, q in quotas(sizes, samples).items())


def test_the_seed_decides_and_repeats() -> None:
    first = draw(samples=6, held_out=3, seed=1).workload()
    assert first == draw(samples=6, held_out=3, seed=1).workload()
    drawn = {
        tuple(f.id for f in draw(samples=6, held_out=3, seed=seed).calibration) for seed in range(6)
    }
    assert len(drawn) > 1


def test_what_is_excluded_is_on_neither_side() -> None:
    everything = draw(samples=60, held_out=10)
    gone = everything.calibration[0]
    other = everything.held_out[0]
    split = draw(samples=30, held_out=6, exclude=[gone.episode, other.id])
    both = split.calibration + split.held_out
    assert gone.episode not in {f.episode for f in both}
    assert other.id not in {f.id for f in both}
    assert split.workload()["excluded"] == sorted([gone.episode, other.id])
    assert "excluded" not in everything.workload()


def test_the_record_satisfies_its_schema_and_names_no_path() -> None:
    record = draw(samples=5, held_out=2, exclude=["episode_000001"]).workload()
    assert tuple(Draft202012Validator(WORKLOAD).iter_errors(record)) == ()
    assert record["kind"] == "robot"
    assert record["split"] == "by episode"
    assert str(HERE) not in str(record)
    assert [f["id"] for f in record["frames"]] == sorted(f["id"] for f in record["frames"])
    assert all(f["digest"].startswith("sha256:") for f in record["frames"] + record["held_out"])


def test_fewer_samples_are_stratified_anew() -> None:
    split = draw(samples=40, held_out=0)
    fewer = choose(split.calibration, 6, 0)
    assert len({f.task for f in fewer}) == 3
    assert [f.id for f in fewer] != [f.id for f in split.calibration[:6]]
    assert max(f.episode for f in fewer) >= "episode_000007"


@pytest.mark.parametrize(
    "numbers",
    [{"samples": 0}, {"held_out": -1}, {"seed": -1}, {"exclude": ["episode_000099"]}],
)
def test_numbers_and_names_that_make_no_sense(numbers: dict[str, Any]) -> None:
    assert refused(Reason.CONFLICT, **numbers)


def test_more_than_there_are() -> None:
    assert "ask for fewer" in str(refused(Reason.EMPTY_CORPUS, samples=98, held_out=0))
    assert refused(Reason.EMPTY_CORPUS, samples=90, held_out=30)


def test_as_many_episodes_are_held_out_as_the_frames_need() -> None:
    split = draw(samples=60, held_out=10)
    assert len(split.held_out) == 10
    assert len({f.episode for f in split.calibration}) >= 6


def test_one_episode_a_task_cannot_be_on_both_sides() -> None:
    kept = {"episode_000000", "episode_000002", "episode_000005"}
    others = {episode for _, episode in DATASET.strata} - kept
    error = refused(Reason.EMPTY_CORPUS, samples=4, held_out=2, exclude=others)
    assert "stays for calibration" in str(error)
    assert len(draw(samples=4, held_out=0, exclude=others).calibration) == 4


def test_a_copied_episode_is_noticed(robot: Any) -> None:
    """The same episode under two numbers would be calibrated with and judged on."""
    data = robot("pusht_v21")
    chunk = data.root / "data/chunk-000"
    for twin in range(1, 9):
        shutil.copy(chunk / "episode_000000.parquet", chunk / f"episode_{twin:06d}.parquet")
        data.table(
            lambda rows, n=twin: [row.update(episode_index=n) for row in rows],
            f"data/chunk-000/episode_{twin:06d}.parquet",
        )
    data.lines("meta/episodes.jsonl", lambda lines: [line.update(length=14) for line in lines])
    data.info(total_frames=9 * 14)
    with pytest.raises(Refusal) as caught:
        robot_frames(open_dataset(data.root), samples=60, held_out=10)
    assert caught.value.reason is Reason.CONFLICT
    assert "copy" in str(caught.value)
