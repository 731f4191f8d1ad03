"""Rules by which peers call an arm faster, re-stated in our own words, beside both of ours.

Each takes a simulated machine and says whether the treated arm is promoted. ``pairs`` is what it
looked at. Rules without a margin ask only "faster?": that is what they promise, no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from statistics import median

import numpy as np
from race_machine import Machine
from scipy import stats

from flashrt.race.decision import Decision, PastMargin, alpha_of_attempt
from flashrt.race.measure import race
from flashrt.race.protocol import Protocol
from flashrt.race.rule import Rule
from flashrt.race.series import PAIRS_PER_BLOCK, ratios

MARGIN = 1.02
ALPHA = 0.01
RUNS = 50
BOOTSTRAPS = 400
SIMULATED_S = 1e9


@dataclass(frozen=True)
class Call:
    """What a rule said of one machine, and after how many pairs of samples."""

    decision: Decision
    pairs: int

    @classmethod
    def of(cls, promoted: bool, pairs: int) -> Call:
        """A rule that knows only yes and no."""
        return cls(Decision.WIN if promoted else Decision.OPEN, pairs)


def race_rule(protocol: Protocol, alpha: float = ALPHA, budget_s: float = SIMULATED_S) -> Rule:
    """The rule of a first attempt at a cell that may spend ``alpha``, with the whole budget."""
    return Rule(
        PastMargin(MARGIN),
        alpha_of_attempt(alpha, 1),
        looks=protocol.looks,
        budget_s=budget_s,
        protocol=protocol,
    )


def ours(machine: Machine, seed: int, protocol: Protocol = Protocol.PATHS) -> Call:
    """The race as it is shipped: the same code, on a simulated clock."""
    rule = race_rule(protocol)
    series = race(machine.arms, machine, machine, Random(seed), rule)
    _, decision = rule.consult(ratios(series.observed()))
    return Call(decision, len(series.kept) * PAIRS_PER_BLOCK)


def first_protocol(machine: Machine, seed: int) -> Call:
    """The race before exact boundaries: six looks with an equal share of the error each."""
    return ours(machine, seed, Protocol.EVEN)


def fixed_order(machine: Machine, _seed: int) -> Call:
    """Five rounds, host first: medians of ten runs each; the median round past the margin."""
    rounds = []
    for _ in range(5):
        host = median(machine.host() for _ in range(10))
        rounds.append(host / median(machine.treated() for _ in range(10)))
    return Call.of(median(rounds) > MARGIN, RUNS)


def _one_after_the_other(machine: Machine) -> tuple[list[float], list[float]]:
    return [machine.host() for _ in range(RUNS)], [machine.treated() for _ in range(RUNS)]


def medians(machine: Machine, _seed: int) -> Call:
    """All runs of the host, then all of the treated arm; the lower median wins."""
    host, treated = _one_after_the_other(machine)
    return Call.of(median(treated) < median(host), RUNS)


def minimum(machine: Machine, _seed: int) -> Call:
    """The same with the least time of each."""
    host, treated = _one_after_the_other(machine)
    return Call.of(min(treated) < min(host), RUNS)


def rank_sum(machine: Machine, _seed: int) -> Call:
    """The same with a one-sided Mann–Whitney test at 5 %."""
    host, treated = _one_after_the_other(machine)
    return Call.of(bool(stats.mannwhitneyu(treated, host, alternative="less").pvalue < 0.05), RUNS)


def _abba(machine: Machine, pairs: int) -> list[float]:
    found = []
    for _ in range(pairs // PAIRS_PER_BLOCK):
        first = (machine.host(), machine.treated())
        last = (machine.treated(), machine.host())
        found += [math.log(first[0] / first[1]), math.log(last[1] / last[0])]
    return found


def signed_rank(machine: Machine, _seed: int) -> Call:
    """100 pairs in ABBA order, a one-sided Wilcoxon test of their log-ratios at 1 %."""
    found = _abba(machine, 2 * RUNS)
    return Call.of(bool(stats.wilcoxon(found, alternative="greater").pvalue < 0.01), 2 * RUNS)


def bootstrap(machine: Machine, seed: int) -> Call:
    """100 pairs in ABBA order, the 99 % bootstrap lower bound of their median past the margin."""
    found = np.array(_abba(machine, 2 * RUNS))
    picks = np.random.default_rng(seed).integers(0, len(found), (BOOTSTRAPS, len(found)))
    low = float(np.quantile(np.median(found[picks], axis=1), 0.01))
    return Call.of(low > math.log(MARGIN), 2 * RUNS)


RULES: dict[str, Callable[[Machine, int], Call]] = {
    "flashrt": ours,
    "flashrt, first protocol": first_protocol,
    "fixed order 5 × 10, medians, margin": fixed_order,
    "one after the other, medians": medians,
    "… minimum": minimum,
    "… rank-sum .05": rank_sum,
    "ABBA 100, signed rank .01": signed_rank,
    "ABBA 100, bootstrap, margin": bootstrap,
}
