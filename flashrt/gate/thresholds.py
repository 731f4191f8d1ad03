"""The thresholds of one judgement: the spec's own gates, what the caller stated, the tool's policy.

A caller may raise the margin and state floors; nobody can lower anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import isfinite
from typing import Any

from flashrt.gate.metrics import DIRECTIONS, SCALE_BOUNDS
from flashrt.gate.reading import (
    Malformed,
    check_integer,
    check_number,
    integer,
    many,
    mapping,
    number,
    pair,
    text,
)
from flashrt.gate.reading import field as member
from flashrt.race.certificate import alpha_of_cell
from flashrt.race.decision import Narrow, PastMargin, alpha_of_attempt
from flashrt.race.protocol import CURRENT, Protocol, SignTest
from flashrt.race.rule import LOOKS, Rule
from flashrt.race.series import PAIRS_PER_BLOCK
from flashrt_runtime.reason import Reason, Refusal

ALPHA = 0.01
PROCESSES = 3
FOREIGN_LIMIT = 0.10
MOST_PAIRS = 2_000


@dataclass(frozen=True)
class SpecGates:
    """What a structure's spec fixes: its digest, the banded metric, the bands and the margin.

    The metric is one of :data:`flashrt.gate.metrics.DIRECTIONS`; bands are least values for
    ``pass`` and ``warn``; the margin is a ratio of times, host over treated.
    """

    digest: str
    metric: str
    band_pass: float
    band_warn: float
    margin: float


@dataclass(frozen=True)
class Thresholds:
    """All that :func:`flashrt.gate.judge.judge` compares evidence with.

    ``attempt`` is this attempt's number at the cell (1 for the first): it fixes what the race may
    spend of ``alpha``. ``looks`` are numbers of kept pairs; ``null_width`` is the high / low that
    an A/A interval must stay below; ``scale_bounds`` hold the pooled norm of each treated window
    over the host's. ``protocol`` is the version of the race and of this record: receipts of the
    first one do not name it, and its scale bounds are the tool's.
    """

    margin: float
    metric: str
    band_pass: float
    band_warn: float
    floors: Mapping[str, float] = field(default_factory=dict)
    attempt: int = 1
    alpha: float = ALPHA
    processes: int = PROCESSES
    foreign_limit: float = FOREIGN_LIMIT
    null_width: float = 1.02
    looks: tuple[int, ...] = LOOKS
    protocol: Protocol = CURRENT
    scale_bounds: tuple[float, float] = SCALE_BOUNDS

    def record(self) -> dict[str, Any]:
        """JSON form, as it stands in a receipt."""
        versioned = {"protocol": int(self.protocol), "scale_bounds": list(self.scale_bounds)}
        return ({} if self.protocol is Protocol.EVEN else versioned) | {
            "margin": self.margin,
            "alpha": self.alpha,
            "attempt": self.attempt,
            "looks": list(self.looks),
            "processes": self.processes,
            "foreign_limit": self.foreign_limit,
            "null_width": self.null_width,
            "metric": self.metric,
            "bands": {"pass": self.band_pass, "warn": self.band_warn},
            "floors": dict(sorted(self.floors.items())),
        }

    @property
    def alpha_series(self) -> Fraction:
        """One-sided error rate of one series."""
        return alpha_of_attempt(self.alpha, self.attempt)

    @property
    def test(self) -> SignTest:
        """The statistics of both races."""
        return SignTest(self.protocol, self.alpha_series, self.looks)

    def race_rule(self, budget_s: float, budget_pairs: int = LOOKS[-1]) -> Rule:
        """The rule of the race of the host against the treated arm."""
        return self._rule(PastMargin(self.margin), budget_s, budget_pairs)

    def null_rule(self, budget_s: float, budget_pairs: int = LOOKS[-1]) -> Rule:
        """The rule of the race of the host against itself."""
        return self._rule(Narrow(self.null_width), budget_s, budget_pairs)

    def _rule(self, question: PastMargin | Narrow, budget_s: float, budget_pairs: int) -> Rule:
        return Rule(
            question=question,
            alpha=self.alpha_series,
            protocol=self.protocol,
            looks=self.looks,
            foreign_limit=self.foreign_limit,
            budget_s=budget_s,
            budget_pairs=budget_pairs,
        )


def declare(
    gates: SpecGates,
    *,
    margin: float | None = None,
    floors: Mapping[str, float] | None = None,
    attempt: int = 1,
    processes: int = PROCESSES,
    cells: int = 1,
) -> Thresholds:
    """Thresholds from a spec's gates and what a caller states.

    ``cells`` are asked for together and share the policy's error rate.

    Raises :class:`Refusal` (THRESHOLD) for a margin below the spec's, fewer than three processes,
    or a floor on a metric that does not exist or is not a number.
    """
    stated = gates.margin if margin is None else margin
    require_stated(stated, floors, processes, least=gates.margin)
    return Thresholds(
        margin=stated,
        metric=gates.metric,
        band_pass=gates.band_pass,
        band_warn=gates.band_warn,
        floors=dict(floors or {}),
        attempt=attempt,
        alpha=alpha_of_cell(ALPHA, cells),
        processes=processes,
        null_width=stated,
    )


def require_stated(
    margin: float | None, floors: Mapping[str, float] | None, processes: int, *, least: float = 1.0
) -> None:
    """Refuse what no spec allows: a host is loaded for minutes before a spec's gates are known.

    Raises :class:`Refusal` (THRESHOLD) for a margin below ``least`` or not finite, fewer than three
    processes, or a floor on a metric that does not exist or is not a number.
    """
    if margin is not None and not isfinite(margin):
        raise _refused("margin", f"{margin} is not a finite number")
    if margin is not None and not margin >= least:
        raise _refused("margin", f"{margin} is below {least}, the least allowed")
    if not processes >= PROCESSES:
        raise _refused("processes", f"{processes} are fewer than {PROCESSES}")
    for name, value in (floors or {}).items():
        if name not in DIRECTIONS:
            raise _refused(f"floors.{name}", f"the metrics are {', '.join(sorted(DIRECTIONS))}")
        if not isfinite(value):
            raise _refused(f"floors.{name}", f"{value} is not a finite number")


def _refused(subject: str, what: str) -> Refusal:
    return Refusal(
        Reason.THRESHOLD, what, subject=subject, do="a caller may raise a gate, never lower it"
    )


def _protocol(body: Any, path: str) -> Protocol:
    """The version that the record names; the first where it names none."""
    if "protocol" not in body:
        return Protocol.EVEN
    named = integer(body, "protocol", path)
    if named not in {int(version) for version in Protocol if version is not Protocol.EVEN}:
        raise Malformed(f"{path}.protocol", "no such version")
    return Protocol(named)


def read_thresholds(body: Any, path: str = "$.thresholds") -> Thresholds:
    """The inverse of :meth:`Thresholds.record`. Raises :class:`Malformed`."""
    bands = member(body, "bands", path)
    protocol = _protocol(body, path)
    found = Thresholds(
        margin=number(body, "margin", path),
        metric=text(body, "metric", path),
        band_pass=number(bands, "pass", f"{path}.bands"),
        band_warn=number(bands, "warn", f"{path}.bands"),
        floors=mapping(body, "floors", path, check_number),
        attempt=integer(body, "attempt", path, 1),
        alpha=number(body, "alpha", path),
        processes=integer(body, "processes", path, 1),
        foreign_limit=number(body, "foreign_limit", path),
        null_width=number(body, "null_width", path),
        looks=many(body, "looks", path, check_integer),
        scale_bounds=SCALE_BOUNDS
        if protocol is Protocol.EVEN
        else pair(member(body, "scale_bounds", path), f"{path}.scale_bounds", check_number),
        protocol=protocol,
    )
    looks = found.looks
    sound = {
        "margin": found.margin >= 1,
        "metric": found.metric in DIRECTIONS,
        "bands": found.band_pass >= found.band_warn,
        "floors": set(found.floors) <= set(DIRECTIONS),
        "attempt": found.attempt <= 1000,
        "alpha": 0 < found.alpha < 0.5,
        "foreign_limit": 0 < found.foreign_limit < 1,
        "null_width": found.null_width > 1,
        "scale_bounds": 0 < found.scale_bounds[0] <= 1 <= found.scale_bounds[1],
        "looks": bool(looks)
        and all(n >= 1 and n % PAIRS_PER_BLOCK == 0 and n <= MOST_PAIRS for n in looks)
        and all(a < b for a, b in pairwise(looks)),
    }
    for name, good in sound.items():
        if not good:
            raise Malformed(f"{path}.{name}", "no threshold of this kind can have this value")
    return found
