"""A race's rule: declared in full before its first sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from flashrt.race.decision import Decision, Interval, Question
from flashrt.race.protocol import CURRENT, Protocol, SignTest
from flashrt.race.series import PAIRS_PER_BLOCK
from flashrt_runtime.reason import Reason, Refusal

LOOKS = CURRENT.looks


@dataclass(frozen=True)
class Rule:
    """When to look, what to ask, how much foreign load is too much, and when to give up.

    ``looks`` are numbers of kept pairs, ascending and even. ``alpha`` is the one-sided error rate
    of the whole series, spent as ``protocol`` says. ``block_s`` is the least time of a block in
    seconds: shorter ones are filled with repeated runs until the load meter can see them.
    ``budget_s`` limits the race's own seconds and ``budget_pairs`` its kept pairs; both may end it
    between looks, which costs power, never error. At most ``spare_blocks`` blocks may be lost to
    foreign load; after each, the race waits for idle in pauses of ``pause_s``, ``pauses`` of them
    at most. The warm-up ends when times are steady, after ``warm_rounds`` samples of each arm at
    the latest.
    """

    question: Question
    alpha: Fraction
    looks: tuple[int, ...] = LOOKS
    foreign_limit: float = 0.10
    block_s: float = 0.05
    budget_s: float = 120.0
    budget_pairs: int = LOOKS[-1]
    spare_blocks: int = 40
    pause_s: float = 0.2
    pauses: int = 25
    warmup: int = 2
    warm_rounds: int = 24
    protocol: Protocol = CURRENT

    def __post_init__(self) -> None:
        looks = self.looks
        rising = all(a < b for a, b in pairwise(looks))
        if not looks or not rising or any(n < 1 or n % PAIRS_PER_BLOCK for n in looks):
            raise Refusal(
                Reason.THRESHOLD,
                f"looks {list(looks)} are not ascending even numbers of pairs",
                do="declare looks such as 20, 40, 80",
            )
        for name in ("foreign_limit", "block_s", "budget_s", "pause_s"):
            if not (getattr(self, name) > 0):
                raise Refusal(Reason.THRESHOLD, f"{name} is not a positive number", subject=name)

    @property
    def test(self) -> SignTest:
        """The statistics of this rule."""
        return SignTest(self.protocol, self.alpha, self.looks)

    def consult(self, values: Sequence[float]) -> tuple[Interval | None, Decision]:
        """Interval and decision after these kept blocks' ratios, in time order."""
        return self.test.consult(self.question, values)
