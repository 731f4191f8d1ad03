"""Which episodes there are, how long, and which files they lie in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flashrt.calibration.lerobot.folder import Folder, Place, parquet, reading
from flashrt.calibration.lerobot.info import Info
from flashrt.calibration.lerobot.video import LAST_SECOND
from flashrt.document.canonical import object_of, read_regular
from flashrt_runtime.reason import Reason

EPISODES, TASKS, TASKS_TABLE = "meta/episodes.jsonl", "meta/tasks.jsonl", "meta/tasks.parquet"
_LIMIT = 256 * 1024 * 1024  # bytes of one metadata file
_FETCH = "fetch the dataset again, whole"


@dataclass(frozen=True)
class VideoPlace:
    """A video file and the second in it where the episode begins."""

    path: str
    start: float


@dataclass(frozen=True)
class Episode:
    """``length`` frames; ``data`` is the parquet file, relative; ``said`` is where that is said."""

    index: int
    length: int
    data: str
    said: Place
    videos: Mapping[str, VideoPlace] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``episode_000012``, sorted as the numbers are."""
        return f"episode_{self.index:06d}"


def read_episodes(folder: Folder, info: Info) -> dict[int, Episode]:
    """Every episode by its index, checked against the totals in ``meta/info.json``."""
    listed = _legacy(folder, info) if info.major == 2 else _chunked(folder, info)
    found: dict[int, Episode] = {}
    for episode in listed:
        if episode.index in found:
            at = episode.said.at("$.episode_index")
            raise at.refuse(f"episode {episode.index} is listed twice", _FETCH, Reason.CONFLICT)
        found[episode.index] = episode
    for key, said, counted in (
        ("total_episodes", info.episodes, len(found)),
        ("total_frames", info.frames, sum(e.length for e in found.values())),
    ):
        if said != counted:
            what = f"says {said}, and the episodes that are listed make {counted}"
            raise info.place.at(f"$.{key}").refuse(what, _FETCH, Reason.CONFLICT)
    return found


def read_tasks(folder: Folder, info: Info) -> dict[int, str]:
    """The text of each task by its index."""
    pairs: list[tuple[Any, Any, Place]] = []
    if info.major == 3 and (folder.root / TASKS_TABLE).exists():
        place = folder.place(TASKS_TABLE)
        with_index = ["task_index", _index_column(folder, place)]
        table = folder.table(TASKS_TABLE, with_index, place)
        with reading(place):
            columns = [table.column(name).to_pylist() for name in with_index]
        pairs = [(i, task, place) for i, task in zip(*columns, strict=True)]
    else:
        lines = _lines(folder, TASKS)
        pairs = [(line.get("task_index"), line.get("task"), at) for line, at in lines]
    tasks: dict[int, str] = {}
    for index, task, at in pairs:
        if type(index) is not int or not isinstance(task, str) or not task:
            raise at.at("$.task").refuse("a task has a task_index and a text", _FETCH)
        if index in tasks:
            what = f"task {index} is listed twice"
            raise at.at("$.task_index").refuse(what, _FETCH, Reason.CONFLICT)
        tasks[index] = task
    return tasks


def _index_column(folder: Folder, place: Place) -> str:
    with reading(place):
        names = parquet().read_schema(folder.file(TASKS_TABLE, place)).names
    return "task" if "task" in names else "__index_level_0__"


def _lines(folder: Folder, relative: str) -> Iterable[tuple[dict[str, Any], Place]]:
    place = folder.place(relative)
    data = read_regular(folder.file(relative, place), _LIMIT)
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            yield object_of(line, place.file), Place(place.file, number)


def _legacy(folder: Folder, info: Info) -> Iterable[Episode]:
    for line, at in _lines(folder, EPISODES):
        index = _whole(line.get("episode_index"), at.at("$.episode_index"))
        names = {"episode_chunk": index // info.chunk, "episode_index": index}
        yield Episode(
            index,
            _whole(line.get("length"), at.at("$.length"), least=1),
            info.data_path.format(**names, video_key=""),
            at,
            {
                camera: VideoPlace((info.video_path or "").format(**names, video_key=camera), 0.0)
                for camera in _videos(info)
            },
        )


def _chunked(folder: Folder, info: Info) -> Iterable[Episode]:
    files = folder.under("meta/episodes", "*/*.parquet")
    if not files:
        what = "meta/episodes holds no parquet file"
        raise folder.place("meta/episodes").refuse(what, _FETCH, Reason.EMPTY_CORPUS)
    columns = ["episode_index", "length", "data/chunk_index", "data/file_index"]
    keys = ("chunk_index", "file_index", "from_timestamp")
    columns += [f"videos/{camera}/{key}" for camera in _videos(info) for key in keys]
    for relative in files:
        place = folder.place(relative)
        for row in folder.table(relative, columns, place).to_pylist():
            yield _of_row(row, info, place)


def _of_row(row: Mapping[str, Any], info: Info, at: Place) -> Episode:
    index = _whole(row["episode_index"], at.at("$.episode_index"))

    def fields(prefix: str) -> dict[str, int]:
        keys = ("chunk_index", "file_index")
        return {k: _whole(row[f"{prefix}/{k}"], at.at(f"$.{prefix}/{k}")) for k in keys}

    videos = {}
    for camera in _videos(info):
        start = row[f"videos/{camera}/from_timestamp"]
        if not isinstance(start, float | int) or not 0 <= start <= LAST_SECOND:
            what = f"{start!r} is not a time in the video (episode {index})"
            raise at.at(f"$.videos/{camera}/from_timestamp").refuse(what, _FETCH)
        where = (info.video_path or "").format(**fields(f"videos/{camera}"), video_key=camera)
        videos[camera] = VideoPlace(where, float(start))
    return Episode(
        index,
        _whole(row["length"], at.at("$.length"), least=1),
        info.data_path.format(**fields("data"), video_key=""),
        at,
        videos,
    )


def _videos(info: Info) -> list[str]:
    return [name for name in info.cameras if info.features[name].dtype == "video"]


def _whole(value: Any, at: Place, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise at.refuse(f"{value!r} is not a whole number from {least}", _FETCH)
    return value
