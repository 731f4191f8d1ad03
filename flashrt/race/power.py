"""What a race can see: false-promotion bounds and the smallest gain that it finds reliably."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from flashrt.race import paths
from flashrt.race.protocol import Protocol, SignTest
from flashrt.race.series import PAIRS_PER_BLOCK
from flashrt_runtime.reason import Reason, Refusal

POWER = 0.95
CONFIDENCE = 0.95


def upper_bound(hits: int, runs: int, confidence: float = CONFIDENCE) -> float:
    """One-sided Clopper–Pearson upper bound of a rate of which ``hits`` of ``runs`` were seen."""
    from scipy.special import betaincinv

    return 1.0 if hits >= runs else float(betaincinv(hits + 1, runs - hits, confidence))


def lower_bound(hits: int, runs: int, confidence: float = CONFIDENCE) -> float:
    """One-sided Clopper–Pearson lower bound of a rate of which ``hits`` of ``runs`` were seen."""
    return 1.0 - upper_bound(runs - hits, runs, confidence)


def least_share(test: SignTest, pairs: int, power: float = POWER) -> float | None:
    """The least probability of a block past the margin with which a win is found in ``pairs``.

    None when there is no look by then. Raises :class:`Refusal` (THRESHOLD) for a test of the first
    protocol, whose looks do not share their error rate exactly.
    """
    if test.protocol is Protocol.EVEN:
        raise Refusal(Reason.THRESHOLD, "the first protocol has no exact power", subject="protocol")
    blocks = tuple(look // PAIRS_PER_BLOCK for look in test.looks)
    last = max((n for n in blocks if n * PAIRS_PER_BLOCK <= pairs), default=None)
    if last is None or paths.chances(test.alpha, blocks, 1.0)[last] < power:
        return None
    low, high = 0.5, 1.0
    for _ in range(24):
        middle = (low + high) / 2
        enough = paths.chances(test.alpha, blocks, middle)[last] >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def detectable(
    nulls: Sequence[float], test: SignTest, margin: float, pairs: int, power: float = POWER
) -> float | None:
    """The smallest speed-up that a machine with these A/A ratios finds within ``pairs``.

    A true gain g makes a block's ratio g times an A/A ratio; the gain is found with probability
    ``power`` when enough of those are past the margin. None when there are too few ratios to tell,
    or no look by then.
    """
    share = least_share(test, pairs, power)
    if share is None:
        return None
    allowed = ceil((1 - share) * len(nulls)) - 1  # so many may stay below the margin
    if allowed < 0 or len(nulls) < LEAST_RATIOS:
        return None
    return margin / sorted(nulls)[allowed]


LEAST_RATIOS = 50
