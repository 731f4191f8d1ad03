"""Every row of the data files but its images: which frame it is, of which task, and the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashrt.calibration.lerobot.copies import row_contents
from flashrt.calibration.lerobot.episode import Episode
from flashrt.calibration.lerobot.folder import Folder, Place
from flashrt.calibration.lerobot.info import ACTION, STATE, Info
from flashrt_runtime.reason import Reason

if TYPE_CHECKING:
    import numpy
    import pyarrow

_INTEGERS = ("episode_index", "frame_index", "task_index")
_FETCH = "fetch the dataset again, whole"


@dataclass(frozen=True)
class Rows:
    """Columns over all frames, in the order of episode and frame.

    ``episode``, ``frame``, ``task`` are int64 [N]; ``time`` is float64 [N], in seconds from the
    episode's start; ``state`` is float32 [N, S] (S is 0 where there is none); ``row`` is int64
    [N], the row in the file that the episode's data lie in; ``content`` is uint64 [N], equal
    where state and action are.
    """

    episode: numpy.ndarray
    frame: numpy.ndarray
    task: numpy.ndarray
    time: numpy.ndarray
    state: numpy.ndarray
    row: numpy.ndarray
    content: numpy.ndarray


def read_rows(
    folder: Folder, info: Info, episodes: Mapping[int, Episode], tasks: Mapping[int, str]
) -> Rows:
    """Read and check all rows. Raises :class:`InputError` naming file, field and row.

    Refused: a file that is not there, a row of an episode that does not lie in this file, an
    episode with more or fewer rows than its length, a frame twice, a task without a text, and a
    state with NaN or infinity in it.
    """
    import numpy as np

    by_file: dict[str, list[Episode]] = {}
    for episode in episodes.values():
        by_file.setdefault(episode.data, []).append(episode)
    parts = []
    for relative, here in sorted(by_file.items()):
        part = _read(folder, info, relative, here[0].said)
        _check(part, folder.place(relative), here, tasks)
        parts.append(part)
    if not parts:
        raise info.place.refuse("the dataset has no episodes", reason=Reason.EMPTY_CORPUS)
    joined = [
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("episode", "frame", "task", "time", "state", "row", "content")
    ]
    order = np.lexsort((joined[1], joined[0]))
    return Rows(*(column[order] for column in joined))


def _read(folder: Folder, info: Info, relative: str, said: Place) -> Rows:
    import numpy as np

    state = [STATE] if STATE in info.features else []
    action = [ACTION] if ACTION in info.features else []
    table = folder.table(relative, [*_INTEGERS, "timestamp", *state, *action], said)
    place = folder.place(relative)
    count = table.num_rows
    integers = [_column(table, name, place).astype(np.int64) for name in _INTEGERS]
    time = _column(table, "timestamp", place).astype(np.float64)
    vectors = np.zeros((count, 0), np.float32)
    if state:
        (width,) = info.features[STATE].shape
        vectors = _vectors(table, width, place)
    for name, values in (("timestamp", time), (STATE, vectors)):
        wrong = np.flatnonzero(~np.isfinite(values).reshape(count, -1).all(axis=1))
        if wrong.size:
            what = f"NaN or infinite in row {wrong[0]}, {_frame(integers, int(wrong[0]))}"
            do = "leave the episode out of the dataset, or repair it"
            raise place.at(f"$.{name}").refuse(what, do, Reason.NONFINITE)
    episode, frame, task = integers
    rows = np.arange(count, dtype=np.int64)
    return Rows(episode, frame, task, time, vectors, rows, row_contents(table, [*state, *action]))


def _frame(integers: list[numpy.ndarray], row: int) -> str:
    return f"frame {integers[1][row]} of episode {integers[0][row]}"


def _column(table: pyarrow.Table, name: str, place: Place) -> numpy.ndarray:
    import pyarrow as pa

    column = table.column(name)
    kind = column.type
    fits = pa.types.is_floating(kind) if name == "timestamp" else pa.types.is_integer(kind)
    if not fits or column.null_count:
        raise place.at(f"$.{name}").refuse(f"a column of numbers was expected, not {kind}", _FETCH)
    return column.to_numpy()


def _vectors(table: pyarrow.Table, width: int, place: Place) -> numpy.ndarray:
    """[N, width] float32, or an error that names the first row of another width."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    column, at = table.column(STATE).combine_chunks(), place.at(f"$.{STATE}")
    kind = column.type
    if pa.types.is_floating(kind) and width == 1 and not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False), np.float32)[:, None]
    lists = (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )
    if not lists or not pa.types.is_floating(kind.value_type):
        raise at.refuse(f"vectors of floats were expected, not {kind}", _FETCH)
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != width)
    if wrong.size:
        what = (
            f"row {wrong[0]} has {lengths[wrong[0]]} values, and the feature's shape is [{width}]"
        )
        raise at.refuse(what, _FETCH, Reason.SHAPE)
    values = pc.list_flatten(column)
    if values.null_count:
        raise at.refuse("a value is missing", _FETCH)
    flat = np.asarray(values.to_numpy(zero_copy_only=False), np.float32)
    return flat.reshape(len(column), width)


def _check(part: Rows, place: Place, here: list[Episode], tasks: Mapping[int, str]) -> None:
    import numpy as np

    pairs, counts = np.unique(
        np.stack((part.episode, part.frame), axis=1), axis=0, return_counts=True
    )
    twice = np.flatnonzero(counts > 1)
    if twice.size:
        episode, frame = pairs[twice[0]].tolist()
        what = f"frame {frame} of episode {episode} is there {counts[twice[0]]} times"
        raise place.at("$.frame_index").refuse(what, _FETCH, Reason.CONFLICT)
    found = dict(
        zip(*(a.tolist() for a in np.unique(part.episode, return_counts=True)), strict=True)
    )
    listed = {episode.index: episode for episode in here}
    for index in sorted(found.keys() - listed.keys()):
        what = f"rows of episode {index}, which is not listed as lying in this file"
        raise place.at("$.episode_index").refuse(what, _FETCH, Reason.CONFLICT)
    for index, episode in sorted(listed.items()):
        if found.get(index, 0) != episode.length:
            what = (
                f"{found.get(index, 0)} rows of episode {index}, whose length is {episode.length}"
            )
            raise place.at("$.episode_index").refuse(what, _FETCH, Reason.CONFLICT)
    for index in np.unique(part.task).tolist():
        if index not in tasks:
            what = f"task {index} has no text in the dataset's tasks"
            raise place.at("$.task_index").refuse(what, _FETCH, Reason.CONFLICT)
    if (part.frame < 0).any():
        raise place.at("$.frame_index").refuse("a frame's index is below 0", _FETCH)
