"""Paths that lead elsewhere are refused, with the field that names them."""

import os
from pathlib import Path
from typing import Any

import pytest

from flashrt.calibration.lerobot import open_dataset
from flashrt_runtime.reason import Reason

EPISODES = "meta/episodes/chunk-000/file-000.parquet"
OUTSIDE = ("/" + "etc/hostname", "../outside.parquet", "data/../../outside.parquet", "C:\\x", "\\x")


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("layout", ["pusht_v21", "pusht_v30"])
def test_a_template_that_leads_out(robot: Any, layout: str, path: str) -> None:
    data = robot(layout)
    (data.root.parent / "outside.parquet").write_bytes((data.root / data.first).read_bytes())
    data.info(data_path=path)
    error = data.refused()
    problem = error.problems[0]
    assert ".json" in problem.file or problem.file.endswith(EPISODES)
    assert "out of the dataset" in problem.what or "inside the dataset" in problem.what


@pytest.mark.parametrize(
    "template",
    [
        "data/{episode_index.__class__}.parquet",
        "data/{episode_index:0999999999d}.parquet",
        "data/{episode_index!r}.parquet",
        "data/{secret}.parquet",
        "data/{}.parquet",
        "data/{episode_index",
        "",
        None,
        7,
    ],
)
def test_a_template_with_anything_but_the_layouts_fields(robot: Any, template: Any) -> None:
    data = robot("pusht_v21")
    data.info(data_path=template)
    problem = data.refused().problems[0]
    assert (problem.file.endswith("meta/info.json"), problem.path) == (True, "$.data_path")


def test_a_symlink_out_of_the_folder(robot: Any, tmp_path: Path) -> None:
    data = robot("pusht_v21")
    outside = tmp_path / "outside.parquet"
    (data.root / data.first).rename(outside)
    (data.root / data.first).symlink_to(outside)
    error = data.wrong("meta/episodes.jsonl", "$", "link that leads out", Reason.SCHEMA)
    assert "cp -rL" in str(error)


def test_a_symlink_that_stays_inside_is_read(robot: Any) -> None:
    data = robot("pusht_v21")
    inside = data.root / "blob"
    (data.root / data.first).rename(inside)
    (data.root / data.first).symlink_to(inside)
    assert open_dataset(data.root).frame(0).position == 0


@pytest.mark.parametrize("kind", ["loop", "folder", "pipe"])
def test_what_is_not_a_regular_file(robot: Any, kind: str) -> None:
    data = robot("pusht_v21")
    path = data.root / data.first
    path.unlink()
    if kind == "loop":
        path.symlink_to(path.name)
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    assert data.first in data.refused().problems[0].what
