"""Boundaries of a sequential sign test, by exact counting of paths.

Blocks are compared with a number: above it or not. If the true median ratio is at most that number,
each block is above it with probability at most one half, whatever came before. So the count of
blocks above is at most a fair walk, and the chance that a fair walk ever reaches a boundary is a
ratio of integers: the number of paths that reach it over the number of all paths. No approximation
and no simulation, and unlike an equal share for every look (Bonferroni) nothing is lost to looking
often: paths that crossed at an earlier look are not counted twice, and what one look could not
spend, because counts are whole, the next one may.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

HALF_SPENT = 40  # blocks by which about half of the error rate may have been spent


def spendable(alpha: Fraction, blocks: int, horizon: int) -> Fraction:
    """What the looks up to ``blocks`` may spend together: rises to ``alpha`` at the horizon."""
    return alpha * blocks * (horizon + HALF_SPENT) / (horizon * (blocks + HALF_SPENT))


@lru_cache(maxsize=64)
def boundaries(alpha: Fraction, looks: tuple[int, ...]) -> Mapping[int, int]:
    """By number of blocks at a look, the least count above that rejects; n + 1 where none does.

    ``looks`` are numbers of blocks, ascending. A fair walk that is consulted at every look reaches
    a boundary with probability at most ``alpha``.
    """
    horizon = looks[-1]
    alive = [1]  # paths of length n that have crossed nowhere, by their count above
    crossed = 0  # paths of length n that crossed at an earlier look
    found: dict[int, int] = {}
    for n in range(1, horizon + 1):
        alive = [a + b for a, b in zip([*alive, 0], [0, *alive], strict=True)]
        crossed *= 2
        if n not in looks:
            continue
        limit = spendable(alpha, n, horizon) * 2**n
        least = n + 1
        while least > 0 and crossed + alive[least - 1] <= limit:
            least -= 1
            crossed += alive[least]
            alive[least] = 0
        found[n] = least
    return found


def rank(alpha: Fraction, looks: tuple[int, ...], blocks: int) -> int:
    """The rank of the order statistic that bounds the median at this look; 0 if none does.

    More values than ``boundary - 1`` lie above every number below that order statistic, so the
    test rejects exactly the medians below it: the bounds of all looks hold at once with probability
    at least ``1 - alpha`` each.
    """
    least = boundaries(alpha, looks).get(blocks)
    return 0 if least is None else blocks - least + 1


def chances(alpha: Fraction, looks: tuple[int, ...], share: float) -> Mapping[int, float]:
    """By blocks at a look, the probability to have rejected by then.

    ``share`` is the probability that one block is above the number that is tested.
    """
    least = boundaries(alpha, looks)
    alive, crossed = [1.0], 0.0
    found: dict[int, float] = {}
    for n in range(1, looks[-1] + 1):
        up, down = [0.0, *alive], [*alive, 0.0]
        alive = [share * u + (1 - share) * d for u, d in zip(up, down, strict=True)]
        if n in least:
            crossed += sum(alive[least[n] :])
            alive[least[n] :] = [0.0] * (n + 1 - least[n])
            found[n] = crossed
    return found
