"""What one race leaves behind: every pair of samples, every block, every look; all raw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import sqrt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flashrt.race.warm import WarmUp

PAIRS_PER_BLOCK = 2


class Order(Enum):
    """The order in which a block runs its four samples; each cancels linear drift."""

    ABBA = "ABBA"
    BAAB = "BAAB"


class Stopped(Enum):
    """Why a race ended."""

    DECIDED = "decided"
    BUDGET = "budget"
    NOISE = "noise"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Block:
    """Four samples in one order, two of each arm.

    ``pairs`` holds two ``(a, b)`` times in ns, arm a first whatever the order was. ``foreign`` is
    the share of the machine that others used meanwhile; ``kept`` says whether the block counts.
    """

    pairs: tuple[tuple[int, int], tuple[int, int]]
    foreign: float
    kept: bool
    order: Order

    @property
    def ratio(self) -> float:
        """Geometric mean of the block's two ratios a / b: one independent observation.

        Adjacent pairs are correlated, so the block is the unit, not the pair. Written with one
        exact integer quotient and one square root, both correctly rounded by IEEE 754: every
        machine that recomputes it gets the same bits.
        """
        (a1, b1), (a2, b2) = self.pairs
        return sqrt((a1 * a2) / (b1 * b2))


@dataclass(frozen=True)
class Series:
    """One race. ``repeat`` is the number of runs whose mean is one sample.

    ``looks`` lists the numbers of kept pairs at which the rule was consulted, in order.
    ``warm`` is how the warm-up ended, where it is known.
    """

    blocks: tuple[Block, ...]
    looks: tuple[int, ...]
    stopped: Stopped
    repeat: int = 1
    warm: WarmUp | None = None

    @property
    def kept(self) -> tuple[Block, ...]:
        """The blocks that count, in time order."""
        return tuple(block for block in self.blocks if block.kept)

    def observed(self) -> tuple[Block, ...]:
        """The kept blocks that the last look saw; those after it decided nothing."""
        return self.kept[: self.looks[-1] // PAIRS_PER_BLOCK] if self.looks else ()

    def record(self) -> dict[str, Any]:
        """JSON form. ``pairs`` has two entries per block, in the order of ``blocks``."""
        return {
            "unit": "ns",
            "repeat": self.repeat,
            "pairs": [list(pair) for block in self.blocks for pair in block.pairs],
            "blocks": [
                {"foreign": b.foreign, "kept": b.kept, "order": b.order.value} for b in self.blocks
            ],
            "looks": list(self.looks),
            "stopped": self.stopped.value,
        } | ({"warmup": self.warm.record()} if self.warm else {})


def ratios(blocks: Sequence[Block]) -> list[float]:
    """The blocks' ratios a / b, in order. Above 1: arm b is faster."""
    return [block.ratio for block in blocks]
