import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashrt.calibration.lerobot import open_dataset
from flashrt_cli.main import run

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def calibrate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    def call(folder: Path, *arguments: str) -> tuple[int, str, str]:
        base = ["calibrate", "--host", "tiny:pi0", "--frames", f"lerobot:{folder}"]
        code = run([*base, "--store", str(tmp_path / "store"), *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_receipt_of_a_policy_on_simulated_frames(
    calibrate: Call, sample: Path, tmp_path: Path
) -> None:
    folder = sample / "pusht_v30"
    code, out, _ = calibrate(folder, "--samples", "9", "--held-out", "4", "--format", "json")
    assert code == 0
    receipt = json.loads(out)["receipt"]
    workload = receipt["workload"]
    dataset = open_dataset(folder)
    for frame in workload["frames"] + workload["held_out"]:
        index = dataset.ids.index(frame["id"])
        assert frame == dataset.frame(index).record()
    sides = [{f["episode"] for f in workload[key]} for key in ("frames", "held_out")]
    assert not sides[0] & sides[1]
    assert len({f["task"] for f in workload["frames"]}) == 3
    assert (len(workload["frames"]), len(workload["held_out"])) == (9, 4)
    assert receipt["binding"]["name"] == "pi05"
    assert {p["verdict"] for p in receipt["points"]} <= {"calibrated", "undersampled"}
    assert all(p["seen"] == 9 for p in receipt["points"])
    assert str(sample) not in out
    assert len(list((tmp_path / "store" / "calibration").iterdir())) == 1


def test_max_samples_keeps_every_task(calibrate: Call, sample: Path) -> None:
    options = ("--samples", "20", "--held-out", "4", "--max-samples", "3", "--format", "json")
    code, out, _ = calibrate(sample / "pusht_v21", *options)
    frames = json.loads(out)["receipt"]["workload"]["frames"]
    assert code == 0
    assert len(frames) == len({f["task"] for f in frames}) == 3


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows: rows[0].update(task_index=9), "$.task_index"),
        (lambda rows: rows[5]["observation.state"].__setitem__(0, float("nan")), "row 5"),
        (lambda rows: rows[1].update(frame_index=0), "$.frame_index"),
    ],
)
def test_a_wrong_dataset_is_refused_and_nothing_is_written(
    calibrate: Call, robot: Any, tmp_path: Path, spoil: Callable[..., None], said: str
) -> None:
    data = robot("pusht_v21")
    data.table(spoil)
    code, _, err = calibrate(data.root)
    assert code == 2
    assert said in err
    assert data.first in err
    assert not (tmp_path / "store").exists()


def test_an_excluded_name_that_is_not_there(calibrate: Call, sample: Path) -> None:
    code, _, err = calibrate(sample / "pusht_v21", "--exclude", "episode_000042")
    assert code == 2
    assert "episode_000042" in err
