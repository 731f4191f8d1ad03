"""Runs the host over frames and keeps, for every frame, one amax per point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from flashrt.calibration.kinds import Address, Samples
from flashrt.calibration.meter import Meter
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
) -> Samples:
    """One vector of amax a frame, from the host's own forward (``run(frame)``), in frame-id order.

    Frames have an ``id``. Raises :class:`Refusal`: NONFINITE naming the frame and the point at the
    first value that is not finite (nothing of the run is kept), EMPTY_CORPUS without frames,
    CONFLICT when two frames have one id, BINDING for a point that nothing locates, TRAINING.
    """
    import numpy as np
    import torch

    if model.training:
        raise Refusal(Reason.TRAINING, "the model is in training mode", do="call model.eval()")
    if not frames:
        raise Refusal(Reason.EMPTY_CORPUS, "there are no frames to calibrate with")
    ids = [frame.id for frame in frames]
    if len(set(ids)) != len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise Refusal(Reason.CONFLICT, "two frames have this id", subject=twice)
    addresses = addresses_of(seams)
    meter = Meter(model, addresses)
    rows: list[np.ndarray] = []
    seen: list[np.ndarray] = []
    ordered = sorted(frames, key=lambda f: f.id)
    with meter.attached(), torch.no_grad():
        for done, frame in enumerate(ordered):
            tell("calibrate", done, len(ordered), frame.id)
            run(frame)
            amax, called, broken = meter.take()
            if broken is not None:
                raise Refusal(
                    Reason.NONFINITE,
                    f"{addresses[broken].name} was NaN or infinite in this frame",
                    subject=f"frame {frame.id}",
                    do="look at the frame and at the host's weights; nothing was written",
                )
            rows.append(amax)
            seen.append(called)
    tell("calibrate", len(ordered), len(ordered))
    shape = (len(ordered), len(addresses))
    return Samples(
        addresses,
        tuple(frame.id for frame in ordered),
        np.stack(rows).reshape(shape),
        np.stack(seen).reshape(shape),
        meter.observations(),
    )
