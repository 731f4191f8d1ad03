"""A robot dataset: its frames can be counted and placed without decoding any image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt.calibration.lerobot.episode import Episode, read_episodes, read_tasks
from flashrt.calibration.lerobot.folder import Folder, Place, parquet, reading
from flashrt.calibration.lerobot.frame import RobotFrame, content_digest, frame_id
from flashrt.calibration.lerobot.info import Info, read_info
from flashrt.calibration.lerobot.picture import decode
from flashrt.calibration.lerobot.rows import Rows, read_rows
from flashrt.calibration.lerobot.video import decoder, frame_at
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy


@dataclass(frozen=True)
class Dataset:
    """A dataset whose metadata and rows were read and agree with one another."""

    folder: Folder
    info: Info
    episodes: Mapping[int, Episode]
    tasks: Mapping[int, str]
    rows: Rows

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.folder.name

    @property
    def source(self) -> str:
        """What it is; no path."""
        return f"LeRobot {self.info.version} dataset {self.name}"

    @property
    def strata(self) -> list[tuple[str, str]]:
        """(task, episode) of every frame, in the order of the rows."""
        pairs = zip(self.rows.task.tolist(), self.rows.episode.tolist(), strict=True)
        return [(self.tasks[task], self.episodes[episode].name) for task, episode in pairs]

    @property
    def positions(self) -> list[int]:
        """Index of every frame in its episode."""
        return [int(n) for n in self.rows.frame]

    @property
    def ids(self) -> list[str]:
        """Id of every frame."""
        pairs = zip(self.rows.episode.tolist(), self.rows.frame.tolist(), strict=True)
        return [frame_id(self.episodes[episode].name, frame) for episode, frame in pairs]

    def moments(self, rows: Sequence[int]) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Mean and standard deviation of the state over these rows (at least one), float64 [S].

        Sums are exact, so that they depend on no order and no machine.
        """
        import numpy as np

        state = self.rows.state[np.array(rows, np.int64)].astype(np.float64)
        mean = np.array([math.fsum(column) / len(state) for column in state.T], np.float64)
        squares = (state - mean) ** 2
        variance = [math.fsum(column) / len(state) for column in squares.T]
        return mean, np.sqrt(np.array(variance, np.float64))

    def frame(self, index: int) -> RobotFrame:
        """The frame at a row index, its images decoded.

        Raises :class:`InputError` for an image that is none, and :class:`Refusal` (HOST) for
        video without a decoder.
        """
        episode = self.episodes[int(self.rows.episode[index])]
        position = int(self.rows.frame[index])
        task, state = self.tasks[int(self.rows.task[index])], self.rows.state[index]
        images = {camera: self._image(camera, episode, index) for camera in self.info.cameras}
        name = frame_id(episode.name, position)
        digest = content_digest(images, state, task)
        return RobotFrame(name, task, episode.name, position, images, state, digest)

    def _image(self, camera: str, episode: Episode, index: int) -> numpy.ndarray:
        feature, row = self.info.features[camera], int(self.rows.row[index])
        if feature.dtype == "video":
            video = episode.videos[camera]
            path = self.folder.file(video.path, self.info.place.at("$.video_path"))
            second = video.start + float(self.rows.time[index])
            at = self.folder.place(video.path).at(f"$.{camera}")
            return frame_at(path, second, self.info.fps, feature, at)
        path = self.folder.file(episode.data, episode.said)
        place = self.folder.place(episode.data).at(f"$.{camera}[{row}]")
        value, found = _cell(path, row, camera, place)
        if found != (episode.index, int(self.rows.frame[index])):
            what = "the file was changed while the dataset was being read"
            raise place.refuse(what, "start again", Reason.CONFLICT)
        return decode(value, feature, place)


def _cell(path: Path, row: int, camera: str, place: Place) -> tuple[Any, tuple[Any, Any] | None]:
    """A camera's value in a row, and that row's (episode, frame); ``None`` beyond the last row."""
    with reading(place):
        file = parquet().ParquetFile(path)
        names, groups = file.schema_arrow.names, file.num_row_groups
        group = 0
        while group < groups and row >= file.metadata.row_group(group).num_rows:
            row -= file.metadata.row_group(group).num_rows
            group += 1
        columns = [camera, "episode_index", "frame_index"]
        missing = set(columns) - set(names)
        if group == groups:
            return None, None
        part = file.read_row_group(group, columns=columns) if not missing else None
    if part is None:
        raise place.refuse("the table has no such column", "correct the features")
    value, episode, frame = (part.column(name)[row].as_py() for name in columns)
    return value, (episode, frame)


def open_dataset(root: Path) -> Dataset:
    """Read a dataset's metadata and rows; images stay where they are.

    Raises :class:`Refusal`: EMPTY_CORPUS for a folder that is not there or a dataset without
    cameras and state, HOST where pyarrow, or a decoder that the dataset needs, is not installed;
    :class:`InputError` for everything that is wrong in the files, naming file and field.
    """
    if not root.is_dir():
        raise Refusal(Reason.EMPTY_CORPUS, "no such folder", subject=str(root), do="check the path")
    parquet()
    folder = Folder(root)
    info = read_info(folder)
    if not info.cameras and "observation.state" not in info.features:
        what = "the dataset has neither a camera nor observation.state"
        raise info.place.at("$.features").refuse(what, reason=Reason.EMPTY_CORPUS)
    if any(info.features[camera].dtype == "video" for camera in info.cameras):
        decoder()
    episodes, tasks = read_episodes(folder, info), read_tasks(folder, info)
    return Dataset(folder, info, episodes, tasks, read_rows(folder, info, episodes, tasks))
