"""Runs the host over frames and keeps, for every frame, one amax per point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from flashrt.calibration.grouped import Stream
from flashrt.calibration.kinds import Address, Samples
from flashrt.calibration.mask import Mask
from flashrt.calibration.meter import Meter, Taken
from flashrt.calibration.reduce import effective_percentile
from flashrt.calibration.siblings import SiblingWatch
from flashrt.calibration.statistic import AMAX, Statistic, require_measurable, shown
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch


class Tell(Protocol):
    """How progress is reported; the caller decides how it is shown."""

    def __call__(self, stage: str, done: int = 0, total: int = 0, note: str = "") -> None:
        """``done`` of ``total`` units of ``stage`` are behind us."""


def silent(stage: str, done: int = 0, total: int = 0, note: str = "") -> None:
    """A :class:`Tell` that shows nothing."""


def addresses_of(seams: Sequence[Seam]) -> tuple[Address, ...]:
    """Every point of every seam, by seam id then point name."""
    return tuple(
        Address(seam.id, name, point.module, point.capture)
        for seam in sorted(seams, key=lambda s: (s.id, s.structure))
        for name, point in sorted(seam.points.items())
    )


def collect(
    model: torch.nn.Module,
    seams: Sequence[Seam],
    frames: Sequence[Any],
    run: Callable[[Any], object],
    tell: Tell = silent,
    *,
    statistics: Mapping[tuple[str, str], Statistic | None] | None = None,
    percentile: float = 99.9,
    mask: Callable[[Any], torch.Tensor | None] | None = None,
) -> Samples:
    """One vector of amax a frame, from the host's own forward (``run(frame)``), in frame-id order.

    Frames have an ``id``. ``statistics`` asks for more at a (seam id, point): per channel or block,
    or second moments; of those, as many values are kept as ``percentile`` of all frames reads.
    ``mask(frame)`` is bool, True at the positions that count, or ``None`` where all do; an
    activation whose leading dims are the frame's positions is measured without the others.

    Raises :class:`Refusal`: NONFINITE naming the frame and the point at the first value that is not
    finite (nothing of the run is kept), EMPTY_CORPUS without frames, CONFLICT when two frames have
    one id or two seams one point of one name, BINDING for a point that nothing locates, TRAINING
    for a model any module of which is in training mode, PERCENTILE for a statistic that nothing
    measures or a number that is none, SHAPE for a mask that fits no point, blocks that do not
    divide a width or widths that differ, DTYPE for a mask that is not bool or an activation of
    eight bits, LAYOUT for one that is not dense, SHARED_INPUT when q, k and v of a seam were not
    called as discovery or the binding says.
    """
    import numpy as np
    import torch

    _require_eval(model)
    ordered = _ordered(frames)
    addresses = distinct(addresses_of(seams))
    asked = _asked(addresses, statistics or {})
    effective = effective_percentile(percentile, len(ordered))
    streams = {i: Stream(i, s, len(ordered), effective) for i, s in asked.items()}
    meter, watch = Meter(model, addresses, asked), SiblingWatch(model, seams)
    amax = np.zeros((len(ordered), len(addresses)), dtype=np.float32)
    seen = np.zeros(amax.shape, dtype=bool)
    unmasked: set[int] = set()
    with meter.attached(), watch.attached(), torch.no_grad():
        for row, frame in enumerate(ordered):
            tell("calibrate", row, len(ordered), frame.id)
            counted = mask(frame) if mask is not None else None
            meter.use(Mask(counted) if counted is not None else None)
            run(frame)
            taken = meter.take()
            _check(taken, watch.take(), frame.id, addresses)
            amax[row], seen[row] = taken.amax, taken.seen
            unmasked.update(taken.unmasked)
            for index, folded in taken.vectors.items():
                streams[index].add(folded, f"{addresses[index].name}, frame {frame.id}")
    tell("calibrate", len(ordered), len(ordered))
    grouped = [streams[i].finish() for i in sorted(streams)]
    return Samples(
        addresses,
        tuple(frame.id for frame in ordered),
        amax,
        seen,
        meter.observations(),
        tuple(one for one in grouped if one is not None),
        tuple(sorted(unmasked)),
    )


def distinct(addresses: tuple[Address, ...]) -> tuple[Address, ...]:
    """``addresses``, sorted by seam and point. Raises :class:`Refusal` (CONFLICT) where two have
    one name: what is asked for by that name would be the amax of either."""
    for one, two in pairwise(sorted(addresses, key=lambda a: (a.seam, a.point))):
        if (one.seam, one.point) == (two.seam, two.point):
            raise Refusal(
                Reason.CONFLICT,
                f"two seams of this id have this point, at {one.module} and at {two.module}",
                subject=one.name,
                do="leave one of the two seams out, or give it another id",
            )
    return addresses


def _require_eval(model: torch.nn.Module) -> None:
    for path, module in model.named_modules():
        if module.training:
            what = "is in training mode, so that no two forwards are the same"
            raise Refusal(
                Reason.TRAINING,
                f"a part of the model {what}" if path else f"the model {what}",
                subject=path,
                do="call model.eval()",
            )


def _ordered(frames: Sequence[Any]) -> list[Any]:
    if not frames:
        raise Refusal(Reason.EMPTY_CORPUS, "there are no frames to calibrate with")
    for frame in frames:
        name = getattr(frame, "id", None)
        if not isinstance(name, str) or not name:
            raise Refusal(
                Reason.CONFLICT,
                f"the id of a frame is {shown(name)}, not text",
                do="give every frame an id that no other has",
            )
    ordered = sorted(frames, key=lambda frame: frame.id)
    for one, two in pairwise(ordered):
        if one.id == two.id:
            raise Refusal(Reason.CONFLICT, "two frames have this id", subject=one.id)
    return ordered


def _asked(
    addresses: Sequence[Address], statistics: Mapping[tuple[str, str], Statistic | None]
) -> dict[int, Statistic]:
    """Statistics by address index, without those that every point has anyway."""
    index = {(address.seam, address.point): i for i, address in enumerate(addresses)}
    asked = {}
    for key, statistic in statistics.items():
        at = index.get(key)
        if at is None:
            name = ":".join(map(str, key)) if isinstance(key, tuple) else str(key)
            what = f"{shown(statistic)} was asked for and no seam has this point"
            raise Refusal(Reason.BINDING, what, subject=name, do="name a (seam id, point)")
        require_measurable(statistic, addresses[at].name)
        if statistic is not None and statistic != AMAX:
            asked[at] = statistic
    return dict(sorted(asked.items()))


def _check(taken: Taken, parted: str | None, frame: str, addresses: Sequence[Address]) -> None:
    if taken.broken is not None:
        raise Refusal(
            Reason.NONFINITE,
            f"{addresses[taken.broken].name} was NaN or infinite in this frame",
            subject=f"frame {frame}",
            do="look at the frame and at the host's weights; nothing was written",
        )
    if parted is not None:
        raise Refusal(
            Reason.SHARED_INPUT,
            "q, k and v were not called in the order and on the one tensor that was seen",
            subject=f"{parted}, frame {frame}",
            do="leave this seam out: one product cannot stand for the three",
        )
    if taken.unmasked and not taken.masked:
        raise Refusal(
            Reason.SHAPE,
            "its mask excludes positions and no point has the mask's positions as its rows, or has "
            "them in one place only",
            subject=f"frame {frame}",
            do="give one bool for every position of the batch that the host is run on, and not as "
            "many sequences as tokens or heads",
        )
