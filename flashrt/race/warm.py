"""Before the first sample: how many runs make one sample, and whether the arms have settled.

Nothing of this is evidence: no run of the warm-up counts, so waiting for a steady state cannot
favour an outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt.race.decision import median
from flashrt.race.series import PAIRS_PER_BLOCK

if TYPE_CHECKING:
    from flashrt.race.measure import Track
    from flashrt.race.rule import Rule

MAX_REPEAT = 1 << 20
WINDOW = 3
STEADY = 1.05


@dataclass(frozen=True)
class WarmUp:
    """``repeat`` runs make a sample; after ``rounds`` of one sample each, were times ``steady``?"""

    repeat: int
    rounds: int
    steady: bool

    def record(self) -> dict[str, Any]:
        """JSON form, as it stands beside the samples."""
        return {"rounds": self.rounds, "steady": self.steady}


def settled(rounds: list[float]) -> bool:
    """Whether the last three rounds took as long as the three before, within 5 % either way."""
    if len(rounds) < 2 * WINDOW:
        return False
    before, last = median(rounds[-2 * WINDOW : -WINDOW]), median(rounds[-WINDOW:])
    return before < last * STEADY and last < before * STEADY


def _repeat(track: Track, rule: Rule) -> int:
    for _ in range(rule.warmup - 1):
        track.once(0), track.once(1)
    needed = rule.block_s * 1e9 / PAIRS_PER_BLOCK
    repeat, spent = 1, track.once(0) + track.once(1)
    while spent < needed and repeat < MAX_REPEAT:
        repeat = min(MAX_REPEAT, repeat * 2)
        spent = (track.mean(0, repeat) + track.mean(1, repeat)) * repeat
    return repeat


def warm_up(track: Track, rule: Rule, deadline_ns: int) -> WarmUp:
    """Size a sample so that a block can be read, then run until steady or out of rounds."""
    repeat = _repeat(track, rule)
    rounds: list[float] = []
    while len(rounds) < rule.warm_rounds and not settled(rounds):
        if track.clock.now_ns() >= deadline_ns:
            break
        rounds.append(float(track.mean(0, repeat) + track.mean(1, repeat)))
    return WarmUp(repeat, len(rounds), settled(rounds))
