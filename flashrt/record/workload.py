"""Workload: an ordered collection of requests that is supplied to an execution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from flashrt.record.frame import FrameRecord


class Request(Protocol):
    """What a workload holds: arrivals with text in the lab, frames where something is measured."""

    def record(self) -> dict[str, Any]:
        """JSON form."""


R = TypeVar("R", bound=Request)


@dataclass(frozen=True)
class Drawing:
    """How frames were drawn from a source, and those held out to judge with.

    ``window`` is the length of a frame (tokens of text, 1 for a robot's observation). ``excluded``
    names what was never drawn. ``state_moments`` is the digest of what normalises a robot's state.
    """

    name: str
    kind: str
    source: str
    held_out: tuple[FrameRecord, ...]
    window: int
    seed: int
    sampler: str
    split: str
    state_moments: str | None = None
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Workload(Generic[R]):
    """Requests in order; the order breaks ties of equal arrival.

    The lab's requests are arrivals and have no ``drawing``. Calibration's and qualification's are
    frames that were drawn from data, beside the frames that were held out.
    """

    requests: tuple[R, ...]
    drawing: Drawing | None = None

    def record(self) -> dict[str, Any]:
        """JSON form: ``{"requests"}``, or that of drawn frames by records.schema.json."""
        held = [request.record() for request in self.requests]
        drawing = self.drawing
        if drawing is None:
            return {"requests": held}
        body: dict[str, Any] = {
            "name": drawing.name,
            "kind": drawing.kind,
            "source": drawing.source,
            "frames": held,
            "held_out": [frame.record() for frame in drawing.held_out],
            "window": drawing.window,
            "seed": drawing.seed,
            "sampler": drawing.sampler,
            "split": drawing.split,
        }
        if drawing.state_moments is not None:
            body["state_moments"] = drawing.state_moments
        return body | ({"excluded": list(drawing.excluded)} if drawing.excluded else {})

    @classmethod
    def from_record(
        cls, record: Mapping[str, Any], request: Callable[[Mapping[str, Any]], R]
    ) -> Workload[R]:
        """The inverse of :meth:`record`; ``request`` reads one request's JSON form."""
        if "requests" in record:
            return cls(tuple(request(one) for one in record["requests"]))
        drawing = Drawing(
            name=record["name"],
            kind=record["kind"],
            source=record["source"],
            held_out=tuple(FrameRecord.from_record(one) for one in record["held_out"]),
            window=record["window"],
            seed=record["seed"],
            sampler=record["sampler"],
            split=record["split"],
            state_moments=record.get("state_moments"),
            excluded=tuple(record.get("excluded", ())),
        )
        return cls(tuple(request(one) for one in record["frames"]), drawing)


def judged_on(
    workload: Workload[FrameRecord], held_out: Iterable[FrameRecord]
) -> Workload[FrameRecord]:
    """The same drawing with the held-out frames that were judged on."""
    if workload.drawing is None:
        return workload
    return replace(workload, drawing=replace(workload.drawing, held_out=tuple(held_out)))
