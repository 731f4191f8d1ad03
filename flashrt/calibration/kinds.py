"""Three kinds of capture. Only a statistic is calibration; the other two are taken while planning.

A *statistic* is reduced across samples by a percentile. *Content* (an adaptive norm's table, an
attention prefix) is itself the artefact: a percentile of it means nothing, so it is a type that
the reduction does not take. An *observation* (rows, dtype) is a fact about the calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt.calibration.statistic import Statistic

if TYPE_CHECKING:
    import numpy
    import torch

    from flashrt_runtime.contract import Point


@dataclass(frozen=True)
class Address:
    """One point of one seam and where it sits in the host."""

    seam: str
    point: str
    module: str
    capture: str

    @property
    def name(self) -> str:
        """``<seam>:<point>``, as messages say it."""
        return f"{self.seam}:{self.point}"


@dataclass(frozen=True)
class Observation:
    """Facts seen at one point: rows of the smallest and largest call, width, dtype, calls."""

    rows: tuple[int, int]
    width: int
    dtype: str
    calls: int

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {"rows": list(self.rows), "width": self.width, "dtype": self.dtype}


@dataclass(frozen=True)
class Grouped:
    """A statistic that a scheme asked for at one point, streamed over the frames.

    ``point`` is the index of its address, ``width`` the channels, ``seen`` the frames that reached
    it, ``rows`` the positions counted over all of them. ``kept`` for amax: float32 [k, groups], the
    largest ``k`` of the frames' values, largest first. For second_moment: float64 [2, groups], the
    sum of squares and what rounding left of it. One group is one channel, 16 of them, or all.
    """

    point: int
    statistic: Statistic
    width: int
    seen: int
    rows: int
    kept: numpy.ndarray


@dataclass(frozen=True)
class Samples:
    """The statistic, one vector a frame: ``amax`` float32 [frames, points].

    ``seen`` is bool [frames, points]: whether the point was called in the frame at all; where it
    was not, ``amax`` is 0 and means nothing. ``observations`` has ``None`` for a point that no
    frame reached. ``grouped`` are the finer statistics, by point, where one was asked for and a
    frame reached it. ``unmasked`` are points whose rows were not the frame's positions, so that
    masked ones could not be told apart there and were measured too.
    """

    addresses: tuple[Address, ...]
    frames: tuple[str, ...]
    amax: numpy.ndarray
    seen: numpy.ndarray
    observations: tuple[Observation | None, ...]
    grouped: tuple[Grouped, ...] = ()
    unmasked: tuple[int, ...] = ()


@dataclass(frozen=True)
class Content:
    """What a module produced in one call, kept whole and never reduced."""

    module: str
    tensor: torch.Tensor


def capture_content(model: torch.nn.Module, at: Point, forward: Any) -> Content:
    """The last tensor seen at a point in one forward, copied. For planning; it has no percentile.

    Raises :class:`Refusal` (NEVER_CALLED) when the forward did not reach the point.
    """
    from flashrt.host.discovery.trace import trace
    from flashrt_runtime.reason import Reason, Refusal

    calls = trace(model, forward, {at.module}, whole=True).calls.get(at.module, [])
    last = (calls[-1].input if at.capture == "input" else calls[-1].output) if calls else None
    if last is None:
        raise Refusal(Reason.NEVER_CALLED, "the forward gave no tensor here", subject=at.module)
    return Content(at.module, last.kept)
