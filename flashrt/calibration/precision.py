"""The parts of a ModelPrecisionSpec: one point, one weight slot, one seam, one set of data."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from flashrt.calibration.reduce import effective_percentile
from flashrt.calibration.statistic import MEASURABLE, Granularity, Kind, Statistic
from flashrt_runtime.reason import Because, Reason, Refusal

SMALLEST = 1.1754943508222875e-38  # the least normal float32: below it a scale has no reciprocal
LARGEST = 3.4028234663852886e38
_STRUCTURE = re.compile(r"[a-z][a-z0-9_]*@[0-9]+")

Scale = float | tuple[float, ...]


# Storage of a packed weight, as an impl's manifest names it, or a dtype of a host.
STORAGE = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "mixed",
    "int8",
    "int4",
    "fp8_e4m3",
    "nvfp4",
)
PLAIN = STORAGE[:5]
GRANULARITIES = ("none", "tensor", "channel", "block_16")


def conflict(what: str, subject: str = "") -> Refusal:
    """A CONFLICT refusal: a record contradicts itself."""
    return Refusal(Reason.CONFLICT, what, subject=subject)


def is_number(value: object) -> bool:
    """Whether it is a float or an int: not a bool, a text, a sequence or a complex number."""
    return isinstance(value, float | int) and not isinstance(value, bool)


def is_finite(value: float) -> bool:
    """``math.isfinite``; no int too large for a float is."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


class Source(Enum):
    """Where an activation's scale comes from. The last two have none."""

    CALIBRATED = "calibrated"
    OVERRIDE = "override"
    DYNAMIC = "dynamic"
    UNQUANTISED = "unquantised"


@dataclass(frozen=True)
class PointPrecision:
    """One activation.

    ``scale`` is one number for ``TENSOR``, a tuple in order of channel or block otherwise, and
    ``None`` where the format quantises in the call or not at all. Raises :class:`Refusal`: CONFLICT
    for fields that contradict each other, NONFINITE or DEAD for a number that is no scale.
    """

    statistic: Statistic | None
    scale: Scale | None
    source: Source

    def __post_init__(self) -> None:
        if not isinstance(self.source, Source):
            raise conflict(f"{self.source!r} is no source of a scale")
        if self.statistic is not None and self.statistic not in MEASURABLE:
            raise conflict(f"{self.statistic!r} is no statistic that a collector measures")
        fixed = self.source in (Source.CALIBRATED, Source.OVERRIDE)
        whole = self.statistic is not None and self.statistic.granularity is Granularity.TENSOR
        good = (self.statistic is not None) is fixed and (self.scale is not None) is fixed
        if not good or (fixed and isinstance(self.scale, tuple) is whole) or self.scale == ():
            what = f"a {self.source.value} point with statistic {self.statistic} has {self.scale}"
            raise conflict(what)
        for value in self.scales:
            if not is_number(value):
                raise conflict(f"{value!r} is no number, so no scale")
            if not is_finite(value):
                raise Refusal(Reason.NONFINITE, f"{value} is no scale")
            if not SMALLEST < value <= LARGEST:
                raise Refusal(Reason.DEAD, f"{value} is no scale: it must be a normal float32 > 0")

    @property
    def scales(self) -> tuple[float, ...]:
        """Every scale, none where the point has none."""
        if self.scale is None:
            return ()
        return self.scale if isinstance(self.scale, tuple) else (self.scale,)

    def record(self) -> dict[str, Any]:
        """JSON form."""
        known = self.statistic
        return {
            "statistic": known.kind.value if known else None,
            "granularity": known.granularity.value if known else None,
            "scale": list(self.scale) if isinstance(self.scale, tuple) else self.scale,
            "source": self.source.value,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> PointPrecision:
        """The inverse of :meth:`record`."""
        statistic = None
        if record["statistic"] is not None:
            statistic = Statistic(Kind(record["statistic"]), Granularity(record["granularity"]))
        given = record["scale"]
        scale: Scale | None = None
        if given is not None:
            scale = tuple(map(float, given)) if isinstance(given, Sequence) else float(given)
        return cls(statistic, scale, Source(record["source"]))


@dataclass(frozen=True)
class WeightPrecision:
    """One weight slot: its storage, and what one of its scales stands for (``none``: no scales).

    Weight scales are derived from the weights when they are bound, and are no calibration. Raises
    :class:`Refusal` (CONFLICT): another storage or granularity, or scales of a plain dtype.
    """

    dtype: str
    granularity: str = "none"

    def __post_init__(self) -> None:
        if self.dtype not in STORAGE:
            raise conflict(f"a weight is stored as {self.dtype!r}; one of {', '.join(STORAGE)}")
        if self.granularity not in GRANULARITIES:
            raise conflict(f"{self.granularity!r} is none of {', '.join(GRANULARITIES)}")
        if self.dtype in PLAIN and self.granularity != "none":
            raise conflict(f"a weight in {self.dtype} has a scale per {self.granularity}")

    def record(self) -> dict[str, str]:
        """JSON form."""
        scales = "none" if self.granularity == "none" else "bind"
        return {"dtype": self.dtype, "granularity": self.granularity, "scales": scales}

    @classmethod
    def from_record(cls, record: Mapping[str, str]) -> WeightPrecision:
        """The inverse of :meth:`record`."""
        return cls(record["dtype"], record["granularity"])


@dataclass(frozen=True)
class SeamPrecision:
    """One seam. ``impl`` is ``(backend, form)``, or ``None`` with the ``reason`` for the host.

    Raises :class:`Refusal` (CONFLICT): both or neither, a point or a weight where the host is kept,
    a structure that is no ``name@version``.
    """

    structure: str
    impl: tuple[str, str] | None
    reason: Because | None
    points: Mapping[str, PointPrecision] = field(default_factory=dict)
    weights: Mapping[str, WeightPrecision] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.structure, str) or not _STRUCTURE.fullmatch(self.structure):
            raise conflict(f"{self.structure!r} is no structure: name@version")
        if (self.impl is None) is (self.reason is None):
            both = "an impl and a reason for the host" if self.impl else "neither impl nor reason"
            raise conflict(f"the seam has {both}", self.structure)
        if self.impl is None and (self.points or self.weights):
            raise conflict(
                "the host is kept, and points or weights have a precision", self.structure
            )
        if self.impl is not None and not (len(self.impl) == 2 and all(self.impl)):
            raise conflict(f"{self.impl!r} is no impl: backend and form", self.structure)

    @property
    def scales(self) -> dict[str, Scale]:
        """The fixed scales by point."""
        return {name: p.scale for name, p in self.points.items() if p.scale is not None}

    def record(self) -> dict[str, Any]:
        """JSON form."""
        impl = {"backend": self.impl[0], "form": self.impl[1]} if self.impl else None
        return {
            "structure": self.structure,
            "outcome": "bind" if self.impl else "keep_host",
            "impl": impl,
            "reason": self.reason.record() if self.reason else None,
            "points": {name: point.record() for name, point in self.points.items()},
            "weights": {slot: weight.record() for slot, weight in self.weights.items()},
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> SeamPrecision:
        """The inverse of :meth:`record`."""
        impl, reason = record["impl"], record["reason"]
        return cls(
            structure=record["structure"],
            impl=(impl["backend"], impl["form"]) if impl else None,
            reason=Because.from_record(reason) if reason else None,
            points={n: PointPrecision.from_record(p) for n, p in record["points"].items()},
            weights={s: WeightPrecision.from_record(w) for s, w in record["weights"].items()},
        )


@dataclass(frozen=True)
class DataIdentity:
    """The data behind the scales. ``digest`` is over the frames' ids and contents, or ``None``.

    Raises :class:`Refusal`: CONFLICT for less than one sample, or an ``effective`` percentile that
    so many samples do not express; PERCENTILE for an ``asked`` that is none.
    """

    name: str
    digest: str | None
    samples: int
    asked: float
    effective: float

    def __post_init__(self) -> None:
        if isinstance(self.samples, bool) or not isinstance(self.samples, int) or self.samples < 1:
            raise conflict(f"{self.samples!r} is no number of samples", self.name)
        if not (is_number(self.asked) and is_number(self.effective)):
            raise conflict(f"{self.asked!r} or {self.effective!r} is no percentile", self.name)
        found = effective_percentile(self.asked, self.samples)
        if self.effective != found:
            what = f"percentile {self.asked} of {self.samples} samples is {found} in effect"
            raise conflict(f"{what}, not {self.effective}", self.name)

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "name": self.name,
            "digest": self.digest,
            "samples": self.samples,
            "asked": self.asked,
            "effective": self.effective,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> DataIdentity:
        """The inverse of :meth:`record`."""
        return cls(
            record["name"],
            record["digest"],
            record["samples"],
            float(record["asked"]),
            float(record["effective"]),
        )
