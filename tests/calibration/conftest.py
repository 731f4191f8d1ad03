"""Simulated robot datasets, copied so that a test may break them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flashrt.calibration.lerobot import open_dataset
from flashrt.document.problem import InputError
from flashrt_runtime.reason import Reason

SAMPLE = Path(__file__).parent / "data"
FIRST = {
    "pusht_v21": "data/chunk-000/episode_000000.parquet",
    "pusht_v30": "data/chunk-000/file-000.parquet",
    "pusht_v30_video": "data/chunk-000/file-000.parquet",
}
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class RobotData:
    """A copy of one sample; ``first`` is the file that holds its first episode."""

    root: Path
    first: str

    def info(self, **changes: Any) -> None:
        path = self.root / "meta/info.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    def feature(self, name: str, **changes: Any) -> None:
        features = json.loads((self.root / "meta/info.json").read_text())["features"]
        self.info(features=features | {name: features[name] | changes})

    def lines(self, relative: str, edit: Callable[[Rows], Any]) -> None:
        path = self.root / relative
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        edit(lines)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def table(self, edit: Callable[[Rows], Any], relative: str = "") -> None:
        """A table's rows as dictionaries, written again with the schema that they had."""
        path = self.root / (relative or self.first)
        table = pq.read_table(path, partitioning=None)
        rows = table.to_pylist()
        edit(rows)
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)

    def column(self, name: str, column: pa.Array | None, relative: str = "") -> None:
        """Another column of this name, or none."""
        path = self.root / (relative or self.first)
        table = pq.read_table(path, partitioning=None)
        kept = table.remove_column(table.column_names.index(name))
        pq.write_table(kept if column is None else kept.append_column(name, column), path)

    def refused(self) -> InputError:
        """The error that the dataset, or its first frame, is refused with."""
        with pytest.raises(InputError) as caught:
            open_dataset(self.root).frame(0)
        return caught.value

    def wrong(self, file: str, path: str, said: str, reason: Reason) -> InputError:
        error = self.refused()
        problem = error.problems[0]
        assert problem.file.endswith(file)
        assert problem.path == path
        assert said in problem.what
        assert error.reason is reason
        return error


@pytest.fixture
def robot(tmp_path: Path) -> Callable[[str], RobotData]:
    """``pusht_v21``, ``pusht_v30`` or ``pusht_v30_video``."""

    def copied(layout: str) -> RobotData:
        return RobotData(Path(shutil.copytree(SAMPLE / layout, tmp_path / layout)), FIRST[layout])

    return copied


@pytest.fixture
def sample() -> Path:
    """The folder of samples, not to be written to."""
    return SAMPLE
