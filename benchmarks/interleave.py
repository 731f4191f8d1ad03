"""Arms taken in turns, in a new random order every round, and compared within the round.

What changes slowly on a machine (clock, heat, a neighbour) then changes for all arms alike. Every
figure is a median with its quartiles; nothing here is a minimum, and nothing asserts a number.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

Arm = Callable[[], object]
SECONDS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


@dataclass(frozen=True)
class Spread:
    """Median and quartiles, in the unit of the values."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Raises ``ValueError`` without a value."""
        if not values:
            raise ValueError("no values")
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(low, middle, high)

    def times(self, factor: float) -> Spread:
        """The same spread in another unit."""
        return Spread(self.low * factor, self.median * factor, self.high * factor)

    def __str__(self) -> str:
        return f"{self.median:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True)
class Samples:
    """Seconds of every arm, by round: ``seconds[name][i]`` are of one round for all names."""

    seconds: Mapping[str, tuple[float, ...]]

    def spread(self, name: str, unit: str = "s") -> Spread:
        """Median and quartiles of an arm's time."""
        return Spread.of(self.seconds[name]).times(SECONDS[unit])

    def ratio(self, name: str, to: str) -> Spread:
        """Time of one arm over another's, round by round. Below 1: ``name`` is faster."""
        pairs = zip(self.seconds[name], self.seconds[to], strict=True)
        return Spread.of([a / b for a, b in pairs])


def interleave(
    arms: Mapping[str, Arm],
    rounds: int,
    *,
    scale: float = 1.0,
    warmup: int = 1,
    seed: int = 0,
    now: Callable[[], float] = time.perf_counter,
) -> Samples:
    """Run every arm once a round, in an order drawn for that round.

    ``scale`` turns the seconds of a run into the seconds of what is counted (1/1000 for an arm
    that does its work a thousand times).
    """
    rng = Random(seed)
    for arm in arms.values():
        for _ in range(warmup):
            arm()
    taken: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        order = list(arms)
        rng.shuffle(order)
        for name in order:
            arm = arms[name]
            start = now()
            arm()
            taken[name].append((now() - start) * scale)
    return Samples({name: tuple(values) for name, values in taken.items()})


def process(command: Sequence[str]) -> Arm:
    """An arm that runs a command in a fresh process and waits for it. It must exit with 0."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHONPROFILE")}

    def run() -> None:
        subprocess.run(
            list(command), check=True, stdout=subprocess.DEVNULL, env=environment, cwd=os.sep
        )

    return run


def show(title: str, samples: Samples, unit: str, against: str, note: str = "") -> None:
    """Print one table: every arm's time and its ratio to ``against``."""
    print(f"\n{title}")
    if note:
        print(note)
    width = max(len(name) for name in samples.seconds)
    rounds = len(samples.seconds[against])
    print(f"{'arm':<{width}}  {unit + ', median [quartiles]':<32}  ratio to {against}")
    for name in samples.seconds:
        time_taken = str(samples.spread(name, unit))
        print(f"{name:<{width}}  {time_taken:<32}  {samples.ratio(name, against)}")
    print(f"{rounds} rounds, arms in a new random order each; load {os.getloadavg()[0]:.2f}")
