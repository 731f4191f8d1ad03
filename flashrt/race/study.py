"""The long form of the null control: many A/A races of one arm, and what they say of the machine.

An arm raced against itself under the rule of a real race must not be promoted. How often it is
bounds this machine's false-promotion rate; how its blocks scatter says what gain it can see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from flashrt.race.clock import Clock
from flashrt.race.decision import Decision, Interval, PastMargin, between, lower_rank, median
from flashrt.race.diagnose import diagnose
from flashrt.race.load import LoadMeter
from flashrt.race.measure import Arm
from flashrt.race.null import null_race
from flashrt.race.power import detectable, upper_bound
from flashrt.race.rule import Rule
from flashrt.race.series import PAIRS_PER_BLOCK, Series, Stopped, ratios

MAD_TO_SD = 1.4826
WITHIN = (100, 640)


@dataclass(frozen=True)
class NullStudy:
    """``races`` that were run; of them ``promoted``, ``lost`` to foreign load, and ``undecided``.

    ``bound`` is the 95 % Clopper–Pearson upper bound of the false-promotion rate over the races
    that were not lost. ``interval`` is that of the median A/A ratio over all kept blocks, ``pairs``
    the median number of kept pairs of a race, ``noise`` the scatter of a block's ratio (as a
    standard deviation), ``drifting`` and ``shifting`` the races in which the host's time or the
    ratio changed level. ``detectable`` is the smallest speed-up found with probability 0.95 within
    so many pairs, None where that cannot be told.
    """

    races: int
    promoted: int
    lost: int
    undecided: int
    bound: float
    interval: Interval | None
    pairs: int
    noise: float | None
    drifting: int
    shifting: int
    margin: float
    detectable: dict[int, float | None]

    @property
    def fit(self) -> bool:
        """Whether the machine may certify: nothing promoted, and 1 inside a narrow interval."""
        seen = self.interval
        return (
            not self.promoted
            and seen is not None
            and seen.low <= 1.0 <= seen.high < seen.low * self.margin
        )

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "races": self.races,
            "promoted": self.promoted,
            "lost": self.lost,
            "undecided": self.undecided,
            "false_promotion_bound": self.bound,
            "null": self.interval.record() if self.interval else None,
            "pairs": self.pairs,
            "noise": self.noise,
            "drifting": self.drifting,
            "shifting": self.shifting,
            "margin": self.margin,
            "detectable": {str(pairs): gain for pairs, gain in self.detectable.items()},
            "fit": self.fit,
        }


def _noise(values: Sequence[float]) -> float | None:
    if not values:
        return None
    centre = median(values)
    return MAD_TO_SD * sorted(abs(v / centre - 1.0) for v in values)[len(values) // 2]


def summarize(seen: Sequence[Series], rule: Rule, margin: float) -> NullStudy:
    """The study of these A/A races under ``rule``, which asks for a win past ``margin``."""
    decisions = [rule.consult(ratios(series.observed()))[1] for series in seen]
    lost = sum(series.stopped is Stopped.NOISE for series in seen)
    promoted = decisions.count(Decision.WIN)
    pooled = [ratio for series in seen for ratio in ratios(series.kept)]
    steady = [found for series in seen if (found := diagnose(series).steadiness) is not None]
    kept = sorted(len(series.kept) * PAIRS_PER_BLOCK for series in seen)
    return NullStudy(
        races=len(seen),
        promoted=promoted,
        lost=lost,
        undecided=decisions.count(Decision.OPEN) - lost,
        bound=upper_bound(promoted, max(promoted, len(seen) - lost)),
        interval=between(pooled, lower_rank(len(pooled), rule.alpha)),
        pairs=kept[len(kept) // 2] if kept else 0,
        noise=_noise(pooled),
        drifting=sum(found.drifted for found in steady),
        shifting=sum(found.shifted for found in steady),
        margin=margin,
        detectable={n: detectable(pooled, rule.test, margin, n) for n in WITHIN},
    )


def null_study(
    arm: Arm,
    clock: Clock,
    load_meter: LoadMeter,
    rule: Rule,
    *,
    races: int,
    seed: int = 0,
    tell: Callable[[int], None] = lambda done: None,
) -> NullStudy:
    """Race ``arm`` against itself ``races`` times under ``rule`` (a :class:`PastMargin`).

    ``tell`` is called with the number of races done. Raises as
    :func:`~flashrt.race.measure.race`, and ``TypeError`` for another question.
    """
    if not isinstance(rule.question, PastMargin):
        raise TypeError("a null study asks what a race asks: a win past a margin")
    seen = []
    for index in range(races):
        rng = Random(f"{seed}:{index}")
        seen.append(null_race(arm, clock, load_meter, rng, rule))
        tell(index + 1)
    return summarize(seen, rule, rule.question.margin)
