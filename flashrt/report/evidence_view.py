"""What the page of one receipt draws: the raw samples, and what follows from them, recomputed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flashrt.gate.evidence import read_evidence
from flashrt.gate.reading import Malformed
from flashrt.gate.speed import Speed, measure
from flashrt.gate.thresholds import read_thresholds
from flashrt.race.decision import Interval
from flashrt.release.source import Body
from flashrt_runtime.reason import Because


@dataclass(frozen=True)
class Lap:
    """One race of one process: times in ns of both arms, pair by pair, two pairs a block.

    ``seen`` is the interval of the ratio at the last look, recomputed from the pairs; None when
    there were too few. ``foreign`` is the share of the machine that others used, by block.
    """

    process: int
    pairs: tuple[tuple[int, int], ...]
    kept: tuple[bool, ...]
    orders: tuple[str, ...]
    foreign: tuple[float, ...]
    looks: tuple[int, ...]
    stopped: str
    seen: Interval | None
    diagnosis: Mapping[str, Any]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Host time over treated time of every pair, kept or not, in the order of time."""
        return tuple(host / treated for host, treated in self.pairs)

    def kept_pair(self, index: int) -> bool:
        """Whether the pair's block counts."""
        return self.kept[index // 2]


@dataclass(frozen=True)
class EvidenceView:
    """One receipt with its races as drawn. ``wrong`` is what does not hold; empty when all does.

    ``wrong`` is None when nobody recomputed the receipt.
    """

    receipt: Body
    races: tuple[Lap, ...]
    nulls: tuple[Lap, ...]
    wrong: tuple[Because, ...] | None

    @property
    def margin(self) -> float:
        """Speed-up that the lower bound has to exceed."""
        return float(self.receipt["thresholds"]["margin"])

    @property
    def thresholds(self) -> Body:
        """As the receipt states them."""
        found: Body = self.receipt["thresholds"]
        return found

    @property
    def statistics(self) -> Body:
        """As the verdict states them."""
        found: Body = self.receipt["verdict"]["statistics"]
        return found

    @property
    def evidence(self) -> Body:
        """The raw evidence."""
        found: Body = self.receipt["evidence"]
        return found


def _lap(process: int, series: Body, seen: Interval | None, diagnosis: Body) -> Lap:
    blocks = series["blocks"]
    return Lap(
        process=process,
        # Two pairs a block: what a malformed series has more belongs to none.
        pairs=tuple((int(a), int(b)) for a, b in series["pairs"][: 2 * len(blocks)]),
        kept=tuple(block["kept"] for block in blocks),
        orders=tuple(block["order"] for block in blocks),
        foreign=tuple(float(block["foreign"]) for block in blocks),
        looks=tuple(series["looks"]),
        stopped=series["stopped"],
        seen=seen,
        diagnosis=diagnosis,
    )


def _speed(receipt: Body) -> Speed | None:
    """Both races of every process, replayed; None for evidence that cannot be."""
    try:
        thresholds = read_thresholds(receipt["thresholds"])
        return measure(read_evidence(receipt["evidence"]), thresholds)
    except Malformed:
        return None  # the verifier names what is wrong; the samples are drawn all the same


def view(receipt: Body, wrong: Sequence[Because] | None = None) -> EvidenceView:
    """What is drawn of a receipt that satisfies its schema."""
    speed = _speed(receipt)
    diagnoses = {d["process"]: d for d in receipt["verdict"]["statistics"]["diagnosis"]}
    laps: dict[str, list[Lap]] = {"null": [], "race": []}
    for index, run in enumerate(receipt["evidence"]["processes"]):
        outcomes = {"null": speed.nulls, "race": speed.races} if speed else {}
        for name, found in laps.items():
            seen = outcomes[name][index].seen if outcomes else None
            diagnosis = diagnoses.get(run["process"], {}).get(name, {})
            found.append(_lap(run["process"], run[name], seen, diagnosis))
    return EvidenceView(
        receipt, tuple(laps["race"]), tuple(laps["null"]), None if wrong is None else tuple(wrong)
    )
