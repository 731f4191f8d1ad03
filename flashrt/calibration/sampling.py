"""Which frames: exact proportional allocation over strata, seeded, whatever order they come in."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from flashrt_runtime.reason import Reason, Refusal


def allocate(weights: Mapping[str, int], count: int) -> dict[str, int]:
    """Share ``count`` over strata in exact proportion to their sizes, by largest remainder.

    No stratum gets more than it holds. Ties go to the larger stratum, then to the name. Raises
    :class:`Refusal` (EMPTY_CORPUS) when the strata hold fewer than ``count`` in all.
    """
    total = sum(weights.values())
    if count > total or count < 0:
        raise Refusal(
            Reason.EMPTY_CORPUS, f"{count} were asked for and there are {total}", do="ask for fewer"
        )
    if not total:
        return dict.fromkeys(weights, 0)
    shares = {name: count * size // total for name, size in weights.items()}
    by_remainder = sorted(
        weights, key=lambda name: (-(count * weights[name] % total), -weights[name], name)
    )
    for name in by_remainder[: count - sum(shares.values())]:
        shares[name] += 1
    return shares


def stratify(strata: Sequence[Sequence[str]], count: int, seed: int) -> list[int]:
    """Indices of ``count`` items, proportional at every level of their strata, in order.

    ``strata[i]`` is the item's path of strata, e.g. ``(category, document)`` or
    ``(task, episode)``; items of one innermost stratum are in the order of their position and are
    picked evenly spread over it. The choice depends on the strata and the seed only.
    """
    picked = _pick(list(range(len(strata))), strata, 0, count, random.Random(seed))
    return sorted(picked)


def _pick(
    items: list[int], strata: Sequence[Sequence[str]], level: int, count: int, rng: random.Random
) -> list[int]:
    if count == len(items):
        return items
    if level == len(strata[items[0]]) if items else True:
        return _spread(items, count, rng)
    groups: dict[str, list[int]] = {}
    for item in items:
        groups.setdefault(strata[item][level], []).append(item)
    names = sorted(groups)
    rng.shuffle(names)  # which strata round up when they tie is the seed's choice
    ranked = {f"{rank:09d}": groups[name] for rank, name in enumerate(names)}
    shares = allocate({rank: len(group) for rank, group in ranked.items()}, count)
    chosen: list[int] = []
    for rank, group in ranked.items():
        chosen += _pick(group, strata, level + 1, shares[rank], rng)
    return chosen


def _spread(items: list[int], count: int, rng: random.Random) -> list[int]:
    """``count`` items, one from each of ``count`` equal stretches."""
    if not count:
        return []
    start = rng.random()
    return [items[int((k + start) * len(items) / count)] for k in range(count)]
