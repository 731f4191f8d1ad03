"""A race's rule: declared in full before its first sample."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from flashrt.race.decision import Question
from flashrt.race.series import PAIRS_PER_BLOCK
from flashrt_runtime.reason import Reason, Refusal

LOOKS = (20, 40, 80, 160, 320, 640)


@dataclass(frozen=True)
class Rule:
    """When to look, what to ask, how much foreign load is too much, and when to give up.

    ``looks`` are numbers of kept pairs, ascending and even. ``alpha`` is the one-sided error rate
    of one look. ``block_s`` is the least time of a block in seconds: shorter ones are filled with
    repeated runs until the load meter can see them. ``budget_s`` limits the race's own seconds and
    ``budget_pairs`` its kept pairs; both may end it between looks, which costs power, never error.
    At most ``spare_blocks`` blocks may be lost to foreign load; after each, the race waits for
    idle in pauses of ``pause_s``, ``pauses`` of them at most.
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
