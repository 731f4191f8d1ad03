"""Which frames: exact proportional allocation over strata, seeded, whatever order they come in."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction

from flashrt_runtime.reason import Reason, Refusal

LARGEST_SEED = 2**53 - 1  # the largest whole number that a receipt can hold
_THIRDS = 3  # stretches of a stratum that gives one frame: its beginning, middle and end


def allocate(weights: Mapping[str, int], count: int) -> dict[str, int]:
    """Share ``count`` over strata in exact proportion to their sizes, by largest remainder.

    No stratum gets more than it holds. Where ``count`` reaches for all of them, every stratum that
    holds something gets at least one: those whose proportion is below one get one, and the rest
    is shared in proportion among the others (:func:`quotas`). No share is off its quota by one or
    more. Ties go to the larger stratum, then to the name. Raises :class:`Refusal` (EMPTY_CORPUS)
    when the strata hold fewer than ``count`` in all.
    """
    quota = quotas(weights, count)
    shares = {name: int(exact) for name, exact in quota.items()}
    by_remainder = sorted(
        weights, key=lambda name: (shares[name] - quota[name], -weights[name], name)
    )
    for name in by_remainder[: count - sum(shares.values())]:
        shares[name] += 1
    return shares


def quotas(weights: Mapping[str, int], count: int) -> dict[str, Fraction]:
    """The exact shares that :func:`allocate` rounds; they add up to ``count``."""
    total = sum(weights.values())
    if count > total or count < 0:
        raise Refusal(
            Reason.EMPTY_CORPUS, f"{count} were asked for and there are {total}", do="ask for fewer"
        )
    quota = dict.fromkeys(weights, Fraction(0))
    above = {name: size for name, size in weights.items() if size}
    left = count
    if count >= len(above):
        while small := [n for n, s in above.items() if left * s < sum(above.values())]:
            for name in small:
                quota[name] = Fraction(1)
                del above[name]
            left -= len(small)
    for name, size in above.items():
        quota[name] = Fraction(left * size, sum(above.values()))
    return quota


def stratify(
    strata: Sequence[Sequence[str]],
    count: int,
    seed: int,
    *,
    positions: Sequence[int] | None = None,
    exclude: Collection[int] = (),
) -> list[int]:
    """Indices of ``count`` items, proportional at every level of their strata.

    ``strata[i]`` is the item's path of strata, all of one length, e.g. ``(category, document)`` or
    ``(task, episode)``; ``positions[i]`` is where it sits in its innermost stratum (its index,
    when none are given); ``exclude`` are indices that are never taken. The first level is shared
    by :func:`allocate`, and so is each below it while there are frames for all of its strata;
    where there are fewer, the strata that give one lie at equal distances along the level. In the
    innermost stratum the items at the midpoints of equal stretches are taken; strata that give
    one item each give it from their beginning, middle and end in turn.

    The choice depends on strata, positions and seed only, not on the order of the items, and the
    seed decides nothing but ties and where a remainder falls. Returned in the order of strata and
    position. Raises :class:`Refusal`: EMPTY_CORPUS for too few items, CONFLICT for paths of
    different length.
    """
    if len({len(path) for path in strata}) > 1:
        raise Refusal(Reason.CONFLICT, "the strata of two frames are not equally deep")
    places = positions if positions is not None else range(len(strata))
    left_out = set(exclude)
    items = sorted(
        (i for i in range(len(strata)) if i not in left_out),
        key=lambda i: (tuple(strata[i]), places[i], i),
    )
    if count > len(items) or count < 0:
        what = f"{count} frames were asked for and there are {len(items)}"
        raise Refusal(Reason.EMPTY_CORPUS, what, do="ask for fewer, or exclude fewer")
    rank = {item: at for at, item in enumerate(items)}
    picked = _pick(items, strata, 0, count, random.Random(seed))
    return sorted(picked, key=rank.__getitem__)


def hold_out(strata: Sequence[Sequence[str]], count: int, seed: int) -> tuple[list[int], list[int]]:
    """Split items into (for calibration, held out); no innermost stratum is on both sides.

    ``count`` innermost strata (episodes, documents) are held out, shared over the level above
    them in proportion to what each can spare: one always stays for calibration. An episode that
    lies in several tasks counts as one, in the first of them. Both lists are in ascending order.
    Raises :class:`Refusal` (EMPTY_CORPUS) when fewer can be spared.
    """
    groups: dict[tuple[str, ...], set[str]] = {}
    home: dict[str, tuple[str, ...]] = {}
    for path in strata:
        above = tuple(path[:-1])
        home[path[-1]] = min(above, home.get(path[-1], above))
    for unit, above in home.items():
        groups.setdefault(above, set()).add(unit)
    named = {str(n): sorted(groups[above]) for n, above in enumerate(sorted(groups))}
    spare = {name: len(units) - 1 for name, units in named.items()}
    if count > sum(spare.values()):
        raise Refusal(
            Reason.EMPTY_CORPUS,
            f"{count} episodes or documents cannot be held out of {len(home)}: one of each task"
            " or category stays for calibration",
            do="add some, or ask for fewer held-out frames",
        )
    judged: set[str] = set()
    for name, share in allocate(spare, count).items():
        order = named[name][:]
        random.Random(f"{seed}:{sorted(groups)[int(name)]}").shuffle(order)
        judged.update(order[:share])
    sides: tuple[list[int], list[int]] = ([], [])
    for index, path in enumerate(strata):
        sides[path[-1] in judged].append(index)
    return sides


def _pick(
    items: list[int], strata: Sequence[Sequence[str]], level: int, count: int, rng: random.Random
) -> list[int]:
    depth = len(strata[items[0]]) if items else 0
    if count in (0, len(items)):
        return items[:count]
    if level == depth:
        return _midpoints(items, count, rng)
    groups: dict[str, list[int]] = {}
    for item in items:
        groups.setdefault(strata[item][level], []).append(item)
    sizes = {name: len(groups[name]) for name in sorted(groups)}
    if level and count < len(groups):
        shares = _along(sizes, count, rng)
    else:
        shares = _ranked(sizes, count, rng)
    chosen: list[int] = []
    turn = rng.randrange(_THIRDS)
    for name in sizes:
        share, group = shares[name], groups[name]
        if share == 1 and level == depth - 1 and len(group) >= _THIRDS:
            start, stop = (len(group) * (turn + k) // _THIRDS for k in (0, 1))
            chosen += _midpoints(group[start:stop], 1, rng)
            turn = (turn + 1) % _THIRDS
        else:
            chosen += _pick(group, strata, level + 1, share, rng)
    return chosen


def _ranked(sizes: Mapping[str, int], count: int, rng: random.Random) -> dict[str, int]:
    """:func:`allocate` with ties broken by the seed, not by the name."""
    names = list(sizes)
    rng.shuffle(names)
    shares = allocate({f"{rank:09d}": sizes[name] for rank, name in enumerate(names)}, count)
    return {name: shares[f"{rank:09d}"] for rank, name in enumerate(names)}


def _along(sizes: Mapping[str, int], count: int, rng: random.Random) -> dict[str, int]:
    """Fewer than there are strata: equal steps over all items in order, from a seeded start.

    Each stratum gets its exact share rounded down or up. Largest remainders would give them all
    to the longest strata, whatever the seed.
    """
    total = sum(sizes.values())
    start = rng.randrange(total)
    shares, before, end = {}, 0, 0
    for name, size in sizes.items():
        end += size
        upto = -((start - end * count) // total)  # steps k with start + k * total < end * count
        shares[name], before = upto - before, upto
    return shares


def _midpoints(items: list[int], count: int, rng: random.Random) -> list[int]:
    """The middle item of each of ``count`` equal stretches; the seed takes one of two middles."""
    chosen = []
    for k in range(count):
        middle, between = divmod((2 * k + 1) * len(items), 2 * count)
        chosen.append(items[middle - rng.randrange(2) if not between else middle])
    return chosen
