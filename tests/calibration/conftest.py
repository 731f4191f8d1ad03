"""Simulated robot datasets, copied so that a test may break them, and one small calibration."""

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
from torch import nn

from flashrt.calibration import Calibration, calibrate
from flashrt.calibration.lerobot import open_dataset
from flashrt.document.problem import InputError
from flashrt.host.corpus import folder_corpus
from flashrt.host.discovery import discover
from flashrt.host.frames import Split, text_frames
from flashrt_runtime.contract import Seam
from flashrt_runtime.identity import checkpoint_digest
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


Build = Callable[..., nn.Module]
SPECS = dict.fromkeys(("decoder_ffn@1", "linear_proj@1", "qkv_pack@1"), "sha256:" + "1" * 64)
BINDING = {"name": "tiny", "digest": "sha256:" + "2" * 64}


def artifact(model: nn.Module) -> dict[str, Any]:
    """The model's record, without an architecture."""
    return {
        "name": "tiny",
        "family": "llama",
        "checkpoint_digest": checkpoint_digest(model.state_dict().items()),
        "dtype": "float32",
        "tokenizer_digest": None,
        "parameters": 1,
        "provenance": "a test",
    }


class Job:
    """One small calibration and what it must be asked for to be loaded again."""

    def __init__(self, model: nn.Module, split: Split) -> None:
        self.model, self.split = model, split
        self.seams: tuple[Seam, ...] = discover(
            model, lambda: model(split.calibration[0].token_ids[None])
        ).seams

    @property
    def artifact(self) -> dict[str, Any]:
        """The model's record as it is now."""
        return artifact(self.model)

    @property
    def expected(self) -> dict[str, Any]:
        """What a receipt of this job is loaded for."""
        return {
            "model_artifact": self.artifact,
            "binding": BINDING,
            "seams": self.seams,
            "specs": SPECS,
        }

    def run(self, **options: Any) -> Calibration:
        """Calibrate."""
        return calibrate(
            self.model,
            self.seams,
            self.split.calibration,
            workload=self.split.workload(),
            model_artifact=self.artifact,
            binding=BINDING,
            specs=SPECS,
            **options,
        )


@pytest.fixture
def job(llama: Build, tokenizer: Any, text_folder: Path) -> Job:
    """A tiny llama, calibrated on six frames of text."""
    corpus = folder_corpus(text_folder)
    split = text_frames(tokenizer, corpus, window=16, samples=6, held_out=3)
    return Job(llama(), split)
