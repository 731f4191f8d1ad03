"""Calibration and held-out frames of a robot dataset, kept apart by episode."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt.calibration.lerobot.copies import require_no_copies
from flashrt.calibration.lerobot.dataset import Dataset
from flashrt.calibration.lerobot.frame import RobotFrame
from flashrt.calibration.sampling import LARGEST_SEED, hold_out, stratify
from flashrt.document.canonical import sha256
from flashrt.record import Drawing, FrameRecord, Workload
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy

SAMPLER = (
    "stratified by task x episode x position, exact proportional allocation by largest remainder"
)


@dataclass(frozen=True)
class RobotSplit:
    """Frames of one dataset; no episode is on both sides. ``excluded`` were never considered.

    ``rows`` are all rows of the calibration side, drawn or not.
    """

    dataset: Dataset
    calibration: tuple[RobotFrame, ...]
    held_out: tuple[RobotFrame, ...]
    seed: int
    excluded: tuple[str, ...]
    rows: tuple[int, ...]

    def moments(self) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Mean and standard deviation of the state, float64 [S], over the calibration side.

        What was held out or excluded takes no part: it would shape the inputs of every frame.
        """
        return self.dataset.moments(self.rows)

    def workload(self) -> dict[str, Any]:
        """The Workload record."""
        mean, std = self.moments()
        numbers = b"".join(v.astype("<f8").tobytes() for v in (mean, std))
        drawing = Drawing(
            name=self.dataset.name,
            kind="robot",
            source=self.dataset.source,
            held_out=tuple(FrameRecord.from_record(f.record()) for f in self.held_out),
            window=1,
            seed=self.seed,
            sampler=SAMPLER,
            split="by episode",
            state_moments=sha256(numbers) if mean.size else None,
            excluded=self.excluded,
        )
        frames = tuple(FrameRecord.from_record(f.record()) for f in self.calibration)
        return Workload(frames, drawing).record()


def robot_frames(
    dataset: Dataset,
    *,
    samples: int = 32,
    held_out: int = 16,
    seed: int = 0,
    exclude: Collection[str] = (),
) -> RobotSplit:
    """Draw ``samples`` calibration and ``held_out`` judgement frames.

    Episodes are split first, in the proportion of the two numbers and within every task, so that
    no episode gives frames to both sides; each side is then stratified. ``exclude`` names frames
    (``episode_000012#000034``) or episodes (``episode_000012``) that are never drawn. Raises
    :class:`Refusal`: CONFLICT for numbers that make no sense, a name that is not in the dataset,
    and one content on both sides; EMPTY_CORPUS when there are too few frames or episodes.
    """
    if samples < 1 or held_out < 0 or not 0 <= seed <= LARGEST_SEED:
        raise Refusal(
            Reason.CONFLICT,
            f"samples {samples}, held out {held_out}, seed {seed}",
            do="at least one sample is needed, nothing is negative, a seed is below 2**53",
        )
    ids, strata, places = dataset.ids, dataset.strata, dataset.positions
    names = {*ids, *(episode.name for episode in dataset.episodes.values())}
    unknown = sorted(set(exclude) - names)
    if unknown:
        what = "the dataset has no such frame or episode to exclude"
        raise Refusal(Reason.CONFLICT, what, subject=unknown[0])
    left_out = set(exclude)
    kept = [
        i for i, name in enumerate(ids) if name not in left_out and strata[i][1] not in left_out
    ]
    sides = _sides([strata[i] for i in kept], samples, held_out, seed)
    drawn = []
    for side, count in zip(sides, (samples, held_out), strict=True):
        pool = [kept[i] for i in side]
        chosen = stratify(
            [strata[i] for i in pool], count, seed, positions=[places[i] for i in pool]
        )
        frames = (dataset.frame(pool[i]) for i in chosen)
        drawn.append(tuple(sorted(frames, key=lambda f: f.id)))
    _different(*drawn)
    rows = [[kept[i] for i in side] for side in sides]
    require_no_copies(dataset, *rows)
    return RobotSplit(dataset, drawn[0], drawn[1], seed, tuple(sorted(left_out)), tuple(rows[0]))


def _sides(
    strata: Sequence[tuple[str, str]], samples: int, held_out: int, seed: int
) -> tuple[list[int], list[int]]:
    """Rows for calibration and held out: episodes in the proportion of the two numbers.

    At least one is held out, and more than the proportion where those are too short for the
    frames that were asked for.
    """
    total = len({episode for _, episode in strata})
    wanted = round(total * held_out / (samples + held_out))
    wanted = max(1, min(wanted, total - len({task for task, _ in strata}))) if held_out else 0
    first = sides = hold_out(strata, wanted, seed)
    while len(sides[1]) < held_out and len(sides[0]) > samples:
        wanted += 1
        try:
            sides = hold_out(strata, wanted, seed)
        except Refusal:  # no more can be spared
            return first
    return sides


def _different(calibration: tuple[RobotFrame, ...], held_out: tuple[RobotFrame, ...]) -> None:
    """An episode that is in the dataset twice would be on both sides under two names."""
    known = {frame.digest: frame for frame in calibration}
    for frame in held_out:
        if frame.digest in known:
            raise Refusal(
                Reason.CONFLICT,
                f"this frame has the content of {known[frame.digest].id}, and one is held out",
                subject=frame.id,
                do="one episode is a copy of the other: exclude one of them",
            )
