"""Episodes that are copies of one another, whatever their names, tasks and lengths."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashrt.calibration.lerobot.frame import content_digest
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy
    import pyarrow

    from flashrt.calibration.lerobot.dataset import Dataset

RUN = 8  # rows in a row that two episodes must share before it counts
SHARE = 0.25  # of the shorter episode's runs: more than a start that all episodes have
_MIX = 0x9E3779B97F4A7C15


def row_contents(table: pyarrow.Table, names: Sequence[str]) -> numpy.ndarray:
    """uint64 [N]: what each row holds in these columns, 0 where there are none."""
    import numpy as np

    found = np.zeros(table.num_rows, np.uint64)
    columns = [_cells(table.column(name)) for name in names]
    for row, cells in enumerate(zip(*columns, strict=True)):
        digest = hashlib.blake2b(b"\0".join(cells), digest_size=8).digest()
        found[row] = int.from_bytes(digest, "little")
    return found


def _cells(column: pyarrow.ChunkedArray) -> list[bytes]:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    lists = pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)
    if lists and pa.types.is_floating(kind.value_type) and not column.null_count:
        widths = pc.unique(pc.list_value_length(column)).to_pylist()
        values = pc.list_flatten(column)
        if len(widths) == 1 and widths[0] and not values.null_count:
            flat = values.to_numpy().reshape(len(column), widths[0])
            return [row.tobytes() for row in flat]
    return [repr(value).encode() for value in column.to_pylist()]


def require_no_copies(
    dataset: Dataset, calibration: Sequence[int], held_out: Sequence[int]
) -> None:
    """Refuse (CONFLICT) a held-out episode whose content a calibration episode has as well.

    ``calibration`` and ``held_out`` are rows of the two sides. State and action are compared in
    runs of rows, so that a copy with another name, task, start or end is found; episodes in which
    nothing moves are told apart by their first, middle and last pictures.
    """
    import numpy as np

    sides = [_episodes(dataset, rows) for rows in (calibration, held_out)]
    lengths = [len(rows) for side in sides for rows in side.values() if len(rows) > 1]
    run = min([RUN, *lengths])
    known, judged = (
        {name: _runs(dataset.rows.content[rows], run) for name, rows in side.items()}
        for side in sides
    )
    everything = np.concatenate([np.zeros(0, np.uint64), *known.values()])
    for name, runs in judged.items():
        if not np.isin(runs, everything).any():
            continue
        for other, theirs in known.items():
            shared = np.intersect1d(runs, theirs, assume_unique=True).size
            if shared and shared >= SHARE * min(runs.size, theirs.size):
                raise _copy(name, other)
    still = (
        {_pictures(dataset, sides[0][name]): name for name, runs in known.items() if not runs.size}
        if any(not runs.size for runs in judged.values())
        else {}
    )
    for name, runs in judged.items():
        if not runs.size and still and (pictures := _pictures(dataset, sides[1][name])) in still:
            raise _copy(name, still[pictures])


def _episodes(dataset: Dataset, rows: Sequence[int]) -> dict[str, numpy.ndarray]:
    import numpy as np

    ordered = np.array(sorted(rows), np.int64)
    index = dataset.rows.episode[ordered]
    return {dataset.episodes[int(i)].name: ordered[index == i] for i in np.unique(index)}


def _runs(content: numpy.ndarray, length: int) -> numpy.ndarray:
    """Distinct runs of ``length`` rows, as uint64; those in which nothing changes say nothing."""
    import numpy as np

    if len(content) < max(length, 2):
        return np.zeros(0, np.uint64)
    windows = np.lib.stride_tricks.sliding_window_view(content, length)
    told = windows[(windows != windows[:, :1]).any(axis=1)]
    mixed = np.zeros(len(told), np.uint64)
    for column in range(length):
        mixed = mixed * np.uint64(_MIX) + told[:, column]  # modulo 2**64
    return np.unique(mixed)


def _pictures(dataset: Dataset, rows: numpy.ndarray) -> tuple[str, ...]:
    import numpy as np

    places = (0, len(rows) // 2, len(rows) - 1)
    frames = (dataset.frame(int(rows[place])) for place in places)
    return tuple(content_digest(frame.images, np.zeros(0, np.float32), "") for frame in frames)


def _copy(held_out: str, calibration: str) -> Refusal:
    return Refusal(
        Reason.CONFLICT,
        f"this held-out episode has the content of {calibration}, which is calibrated on",
        subject=held_out,
        do="one episode is a copy of the other: exclude one of them",
    )
