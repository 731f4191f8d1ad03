"""The null control: the host raced against itself, in the same way as against the treated arm."""

from __future__ import annotations

from random import Random

from flashrt.race.clock import Clock
from flashrt.race.load import LoadMeter
from flashrt.race.measure import Arm, Before, race
from flashrt.race.rule import Rule
from flashrt.race.series import Series

AGAIN = "host_again"


def null_race(
    host: Arm,
    clock: Clock,
    load_meter: LoadMeter,
    rng: Random,
    rule: Rule,
    *,
    before: Before | None = None,
) -> Series:
    """Race ``host`` against itself. ``rule.question`` is a :class:`~flashrt.race.decision.Narrow`.

    The hook sees arms ``host`` and ``host_again``. Raises as :func:`~flashrt.race.measure.race`.
    """
    return race({"host": host, AGAIN: host}, clock, load_meter, rng, rule, before=before)
