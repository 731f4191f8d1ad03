"""The per-sample vectors as a safetensors table, so that a reduction can be done again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashrt.calibration.kinds import Address, Grouped, Observation, Samples
from flashrt.calibration.statistic import MEASURABLE, Kind
from flashrt.document.problem import InputError
from flashrt_runtime.reason import Reason

if TYPE_CHECKING:
    import numpy

FORMAT = "flashrt.calibration_table/1"


def table_bytes(samples: Samples) -> bytes:
    """``amax`` float32 [frames, points] and ``seen`` uint8 [frames, points], in receipt order.

    Where there are any: ``unmasked`` uint8 [points]; and for a finer statistic of the point with
    index ``i``, ``grouped.<i>.<kind>.<granularity>`` (:attr:`Grouped.kept`) with
    ``grouped.<i>.facts`` int64 [3] (width, samples that reached it, positions counted).
    """
    from safetensors.numpy import save

    return save(_laid_out(samples), metadata={"format": FORMAT})


def _laid_out(samples: Samples) -> dict[str, numpy.ndarray]:
    import numpy as np

    tensors = {"amax": samples.amax.astype("float32"), "seen": samples.seen.astype("uint8")}
    for one in samples.grouped:
        kind, granularity = one.statistic.record().values()
        tensors[f"grouped.{one.point}.{kind}.{granularity}"] = np.ascontiguousarray(one.kept)
        facts = (one.width, one.seen, one.rows)
        tensors[f"grouped.{one.point}.facts"] = np.array(facts, dtype=np.int64)
    if samples.unmasked:
        marks = np.zeros(len(samples.addresses), dtype=np.uint8)
        marks[list(samples.unmasked)] = 1
        tensors["unmasked"] = marks
    return tensors


def read_table(data: bytes, shape: Sequence[int]) -> tuple[numpy.ndarray, numpy.ndarray]:
    """``(amax, seen)`` of a table. Raises :class:`InputError` for bytes that are not one."""
    tensors = _tensors(data)
    return _vectors(tensors, shape)


def read_samples(
    data: bytes,
    addresses: Sequence[Address],
    frames: Sequence[str],
    observations: Sequence[Observation | None],
) -> Samples:
    """The samples of a table, finer statistics and all, under what a receipt says of them.

    Raises :class:`InputError` (DIGEST) for bytes that are not such a table.
    """
    tensors = _tensors(data)
    amax, seen = _vectors(tensors, (len(frames), len(addresses)))
    marks = tensors.get("unmasked")
    if marks is not None and (marks.shape != (len(addresses),) or marks.dtype != "uint8"):
        raise _refused(f"unmasked has shape {marks.shape}")
    unmasked = () if marks is None else tuple(int(i) for i in marks.nonzero()[0])
    samples = Samples(
        tuple(addresses),
        tuple(frames),
        amax,
        seen,
        tuple(observations),
        tuple(_grouped(tensors, amax, seen)),
        unmasked,
    )
    _require_nothing_else(tensors, _laid_out(samples))
    return samples


def _require_nothing_else(given: dict[str, numpy.ndarray], ours: dict[str, numpy.ndarray]) -> None:
    """Nothing beside what we would write, and that in the same form."""
    for name in sorted(given.keys() | ours.keys()):
        one, two = given.get(name), ours.get(name)
        if one is None or two is None:
            raise _refused(f"{name} is not part of this table" if two is None else f"no {name}")
        if one.dtype != two.dtype or one.shape != two.shape or one.tobytes() != two.tobytes():
            raise _refused(f"{name} is not as a table holds it")


def _grouped(
    tensors: dict[str, numpy.ndarray], amax: numpy.ndarray, seen: numpy.ndarray
) -> list[Grouped]:
    known = {(s.kind.value, s.granularity.value): s for s in MEASURABLE}
    found = {}
    for name in sorted(tensors):
        parts = name.split(".")
        if parts[0] != "grouped" or parts[-1] == "facts":
            continue
        index, statistic = parts[1], known.get((parts[2], parts[3])) if len(parts) == 4 else None
        facts = tensors.get(f"grouped.{index}.facts")
        points = seen.shape[1]
        ours = index.isascii() and index.isdigit() and int(index) < points
        if statistic is None or not ours or facts is None or facts.shape != (3,):
            raise _refused(f"{name} is not a grouped statistic of one of its {points} points")
        width, reached, rows = (int(fact) for fact in facts)
        one = Grouped(int(index), statistic, width, reached, rows, tensors[name])
        column, reached = amax[:, one.point], int(seen[:, one.point].sum())
        if one.point in found or not _plausible(one, column.max(initial=0.0), reached):
            raise _refused(f"{name} does not fit its facts")
        found[one.point] = one
    return [found[point] for point in sorted(found)]


def _plausible(one: Grouped, largest: float, reached: int) -> bool:
    import numpy as np

    size = one.statistic.granularity.size(one.width) if one.width > 0 else 0
    if not size or one.width % size or one.rows < 1 or not one.seen == reached > 0:
        return False
    amax, kept = one.statistic.kind is Kind.AMAX, one.kept
    if kept.ndim != 2 or kept.shape[1] != one.width // size or not np.isfinite(kept).all():
        return False
    if not amax:
        return bool(kept.dtype == "float64" and len(kept) == 2 and (kept[0] >= 0).all())
    falling = bool((kept[1:] <= kept[:-1]).all() and (kept >= 0).all())
    whole = kept.dtype == "float32" and 0 < len(kept) <= one.seen and falling
    return bool(whole and kept[0].max() == largest)  # the finer maxima are those of the tensors


def _tensors(data: bytes) -> dict[str, numpy.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = dict(load(data))
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size]).get("__metadata__")
    except (SafetensorError, KeyError, ValueError) as error:
        raise _refused(f"not a calibration table: {error}") from error
    if metadata != {"format": FORMAT}:
        raise _refused(f"not a calibration table: its format is not {FORMAT}")
    return tensors


def _vectors(
    tensors: dict[str, numpy.ndarray], shape: Sequence[int]
) -> tuple[numpy.ndarray, numpy.ndarray]:
    if "amax" not in tensors or "seen" not in tensors:
        raise _refused("not a calibration table: it has no amax and seen")
    amax, seen = tensors["amax"], tensors["seen"]
    if amax.shape != tuple(shape) or seen.shape != tuple(shape) or amax.dtype != "float32":
        raise _refused(
            f"its shape is {amax.shape}, the receipt's frames and points are {tuple(shape)}"
        )
    if seen.dtype != "uint8" or not (seen <= 1).all():
        raise _refused("seen is not 0 or 1 everywhere")
    reached = seen.astype(bool)
    # NaN and infinity are named by frame and point where the table is reduced
    if (amax[reached] < 0).any() or not (amax[~reached] == 0).all():
        raise _refused("an amax is negative, or is given where a frame did not reach the point")
    return amax, reached


def _refused(what: str) -> InputError:
    return InputError("calibration table", 1, "$", what, reason=Reason.DIGEST)
