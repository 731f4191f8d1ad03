"""The race itself: two arms, timed in ABBA blocks, until the rule is satisfied or gives up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random

from flashrt.race.clock import Clock
from flashrt.race.decision import Decision
from flashrt.race.load import LoadMeter, foreign_share
from flashrt.race.protocol import Protocol
from flashrt.race.rule import Rule
from flashrt.race.series import PAIRS_PER_BLOCK, Block, Order, Series, Stopped, ratios
from flashrt.race.warm import WarmUp, warm_up
from flashrt_runtime.reason import Reason, Refusal

Arm = Callable[[], None]
Before = Callable[[str, int], None]


class RaceInterrupted(KeyboardInterrupt):
    """Ctrl-C during a race. ``series`` holds what was measured until then."""

    def __init__(self, series: Series) -> None:
        super().__init__("the race was interrupted")
        self.series = series


class Track:
    """Runs arms and times them. The only place where the clock is read around an arm."""

    def __init__(self, arms: Mapping[str, Arm], clock: Clock, before: Before | None) -> None:
        self.names = tuple(arms)
        self.arms = tuple(arms.values())
        self.clock = clock
        self.before = before
        self.sample = 0

    def once(self, seat: int) -> int:
        """Nanoseconds of one run; the hook runs outside of them."""
        if self.before is not None:
            self.before(self.names[seat], self.sample)
        self.sample += 1
        arm, now = self.arms[seat], self.clock.now_ns
        start = now()
        arm()
        return now() - start

    def mean(self, seat: int, repeat: int) -> int:
        """Mean nanoseconds of ``repeat`` runs, at least 1 (a clock may be coarser than an arm)."""
        return max(1, round(sum(self.once(seat) for _ in range(repeat)) / repeat))

    def block(self, order: Order, repeat: int) -> tuple[tuple[int, int], tuple[int, int]]:
        times: tuple[list[int], list[int]] = ([], [])
        for letter in order.value:
            seat = "AB".index(letter)
            times[seat].append(self.mean(seat, repeat))
        a, b = times
        return (a[0], b[0]), (a[1], b[1])


def _orders(rng: Random, protocol: Protocol) -> Iterator[Order]:
    """A fair coin for every block; shuffled in twos under the first protocol."""
    both = [Order.ABBA, Order.BAAB]
    while protocol is not Protocol.EVEN:
        yield both[rng.getrandbits(1)]
    while True:
        rng.shuffle(both)
        yield from both


def _wait_for_idle(clock: Clock, meter: LoadMeter, rule: Rule) -> None:
    for _ in range(rule.pauses):
        before = meter.read()
        clock.sleep(rule.pause_s)
        if foreign_share(before, meter.read()) <= rule.foreign_limit:
            return


def race(
    arms: Mapping[str, Arm],
    clock: Clock,
    load_meter: LoadMeter,
    rng: Random,
    rule: Rule,
    *,
    before: Before | None = None,
) -> Series:
    """Race two arms (first: a, the host; second: b) and return every sample.

    ``before(arm, sample)`` runs before each run, outside the timed region: rotate inputs and
    poison outputs there. A block under foreign load stays in the record, not kept, and is run
    again in the same order after the machine went idle.

    Raises :class:`Refusal` (CONFLICT) unless there are exactly two arms, (NOISE) when the load
    cannot be read, and :class:`RaceInterrupted` on Ctrl-C.
    """
    if len(arms) != 2:
        raise Refusal(Reason.CONFLICT, f"a race has two arms, not {len(arms)}: {list(arms)}")
    track = Track(arms, clock, before)
    blocks: list[Block] = []
    looks: list[int] = []
    warm = WarmUp(1, 0, steady=False)
    deadline = clock.now_ns() + round(rule.budget_s * 1e9)

    def series(stopped: Stopped) -> Series:
        return Series(tuple(blocks), tuple(looks), stopped, warm.repeat, warm)

    try:
        load_meter.read()
        warm = warm_up(track, rule, deadline)
        lost = 0
        orders = _orders(rng, rule.protocol)
        order = next(orders)
        while True:
            if clock.now_ns() >= deadline:
                kept = len(blocks) - lost
                return series(Stopped.NOISE if lost > kept else Stopped.BUDGET)
            start = load_meter.read()
            pairs = track.block(order, warm.repeat)
            foreign = foreign_share(start, load_meter.read())
            blocks.append(Block(pairs, foreign, foreign <= rule.foreign_limit, order))
            if not blocks[-1].kept:
                lost += 1
                if lost > rule.spare_blocks:
                    return series(Stopped.NOISE)
                _wait_for_idle(clock, load_meter, rule)
                continue
            order = next(orders)
            pairs_kept = (len(blocks) - lost) * PAIRS_PER_BLOCK
            if pairs_kept == rule.looks[len(looks)]:
                looks.append(pairs_kept)
                if rule.consult(ratios([b for b in blocks if b.kept]))[1] is not Decision.OPEN:
                    return series(Stopped.DECIDED)
            if len(looks) == len(rule.looks) or pairs_kept >= rule.budget_pairs:
                return series(Stopped.BUDGET)
    except KeyboardInterrupt as error:
        raise RaceInterrupted(series(Stopped.INTERRUPTED)) from error
