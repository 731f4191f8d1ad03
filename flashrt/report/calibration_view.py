"""A calibration receipt and its table as what a picture of them shows, point by point."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flashrt.document.canonical import sha256
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy

PLAIN = "calibrated"
_DIGITS = re.compile("([0-9]+)")


@dataclass(frozen=True)
class PointView:
    """One point. ``values`` float32 [frames that reached it]: their amax in the activation's unit,
    ascending."""

    name: str
    verdict: str
    amax: float | None
    minimum: float | None
    median: float | None
    maximum: float | None
    dispersion: float | None
    calls: int
    values: numpy.ndarray = field(compare=False)

    @property
    def seen(self) -> int:
        """Frames that reached the point."""
        return len(self.values)

    @property
    def clipped(self) -> int:
        """Frames whose largest value is above the scale's reach: some of theirs saturate."""
        if self.amax is None:
            return 0
        # Compared in float64: in float32 a scale between two neighbours would be rounded to one.
        return self.seen - int(self.values.astype("float64").searchsorted(self.amax, "right"))

    @property
    def overshoot(self) -> float | None:
        """maximum / amax, a pure number, above 1 where frames are clipped; ``None``: no scale."""
        return None if self.amax is None or self.maximum is None else self.maximum / self.amax


@dataclass(frozen=True)
class CalibrationView:
    """A whole calibration. ``points`` are in the order of the model (layer 2 before layer 10)."""

    points: tuple[PointView, ...]
    frames: int
    asked: float
    effective: float
    factor: float
    median: float
    limit: float
    summary: str
    warnings: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]

    @property
    def verdicts(self) -> dict[str, int]:
        """How many points have which verdict, the plain one first."""
        counted = Counter(point.verdict for point in self.points)
        return dict(sorted(counted.items(), key=lambda item: (item[0] != PLAIN, item[0])))

    def widest(self) -> tuple[PointView, ...]:
        """Points with a dispersion, the widest first."""
        spread = [p for p in self.points if p.dispersion is not None]
        return tuple(sorted(spread, key=lambda p: (-(p.dispersion or 0.0), p.name)))

    def clipping(self) -> tuple[PointView, ...]:
        """Points whose scale some frame exceeds, the largest overshoot first."""
        found = [p for p in self.points if p.clipped]
        return tuple(sorted(found, key=lambda p: (-(p.overshoot or 0.0), p.name)))

    @property
    def percentile(self) -> str:
        """``99``, or ``99.9, in effect the maximum``."""
        if self.effective == self.asked:
            return f"{self.asked:g}"
        effective = "the maximum" if self.effective == 100.0 else f"{self.effective:g}"
        return f"{self.asked:g}, in effect {effective}"


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts ``layers.2`` before ``layers.10``."""
    parts = enumerate(_DIGITS.split(name))  # every second part is what the pattern matched
    return [(int(part), "") if place % 2 else (-1, part) for place, part in parts]


def view(body: Mapping[str, Any], table: bytes) -> CalibrationView:
    """What a receipt and its table hold.

    Raises :class:`Refusal`: DIGEST when the table is not the one that the receipt names, STATISTIC
    when a point's range is not that of its column; ``InputError`` for bytes that are no table.
    """
    from flashrt.calibration.table import read_table

    if sha256(table) != body["table"]:
        raise Refusal(
            Reason.DIGEST, "the table is not the one the receipt names", subject=str(body["digest"])
        )
    frames = len(body["workload"]["frames"])
    amax, seen = read_table(table, (frames, len(body["points"])))
    points = [
        _point(point, amax[seen[:, column], column]) for column, point in enumerate(body["points"])
    ]
    ceiling, percentile = body["ceiling"], body["percentile"]
    return CalibrationView(
        points=tuple(sorted(points, key=lambda p: natural(p.name))),
        frames=frames,
        asked=float(percentile["asked"]),
        effective=float(percentile["effective"]),
        factor=float(ceiling["factor"]),
        median=float(ceiling["median"]),
        limit=float(ceiling["limit"]),
        summary=str(body["summary"]),
        warnings=tuple(_warning(record) for record in body["warnings"]),
        facts=tuple(_facts(body)),
    )


def _point(record: Mapping[str, Any], column: numpy.ndarray) -> PointView:
    import numpy as np

    values = np.sort(column)
    name = f"{record['seam']}:{record['point']}"
    ends = (float(values[0]), float(values[-1])) if len(values) else (None, None)
    if ends != (record["minimum"], record["maximum"]):
        raise Refusal(
            Reason.STATISTIC,
            "the recorded range is not the table's",
            subject=name,
            do="run `flashrt calibrate` again",
        )
    return PointView(
        name=name,
        verdict=str(record["verdict"]),
        amax=record["amax"],
        minimum=record["minimum"],
        median=record["median"],
        maximum=record["maximum"],
        dispersion=record["dispersion"],
        calls=int(record["calls"]),
        values=values,
    )


def _warning(record: Mapping[str, Any]) -> str:
    subject = f"{record['subject']}: " if record.get("subject") else ""
    return f"{subject}{record['detail']} [{record['code']} {record['name']}]"


def _facts(body: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    artifact, workload, binding = body["model_artifact"], body["workload"], body["binding"]
    software = ", ".join(f"{name} {value}" for name, value in sorted(body["software"].items()))
    structures = ", ".join(f"{s['name']}@{s['version']}" for s in body["structures"])
    return (
        ("receipt", str(body["digest"])),
        ("host", f"{artifact['name']}, {artifact['dtype']}"),
        ("checkpoint", str(artifact["checkpoint_digest"])),
        ("binding", str(binding["name"]) if binding else "none: discovered seams"),
        ("structures", structures),
        ("frames", f"{len(workload['frames'])} of {workload['name']} ({workload['source']})"),
        ("held out", f"{len(workload['held_out'])} frames, {workload['split']}"),
        ("sampler", f"{workload['sampler']}, seed {workload['seed']}"),
        ("software", software),
    )
