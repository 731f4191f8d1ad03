"""Foreign load: the share of the machine's CPU time that other processes used during a block.

A second busy process turned a 0.1 ms operation into an 8 ms median on a two-core machine, and no
average over samples helps against that. So each block is bracketed by two readings of the kernel's
accounting and this process's own CPU time; what is left belongs to others. The kernel counts in
ticks of 10 ms, so a block shorter than about 50 ms cannot be read at all.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flashrt_runtime.reason import Reason, Refusal

BLIND = 1.0
STAT_FIELDS = 8  # user nice system idle iowait irq softirq steal; guest is inside user already
IDLE_FIELDS = (3, 4)


@dataclass(frozen=True)
class Reading:
    """Accumulated CPU seconds: all there were, those that were not idle, and this process's."""

    total_s: float
    busy_s: float
    own_s: float


class LoadMeter(Protocol):
    """Where readings come from."""

    def read(self) -> Reading:
        """The accumulated times now."""


def foreign_share(before: Reading, after: Reading) -> float:
    """Share (0..1) of the machine's CPU time between two readings that was not ours.

    Counters that did not move, or that are not numbers, give 1.0: a load that cannot be read is
    never taken for an idle machine.
    """
    total = after.total_s - before.total_s
    if not (total > 0):
        return BLIND
    share = (after.busy_s - before.busy_s - (after.own_s - before.own_s)) / total
    if not (share <= 1.0):
        return BLIND
    return max(0.0, round(share, 6))


@dataclass(frozen=True)
class ProcStat:
    """Readings from ``/proc/stat`` and this process's CPU clock (all of its threads).

    Time stolen by other guests of the same hardware counts as busy, hence as foreign.
    """

    path: Path = Path("/proc/stat")

    def read(self) -> Reading:
        """The accumulated times now. Raises :class:`Refusal` (NOISE) where they are unreadable."""
        try:
            first = self.path.read_text(encoding="ascii").partition("\n")[0].split()
            ticks = [int(field) for field in first[1 : 1 + STAT_FIELDS]]
        except (OSError, ValueError) as error:
            raise self._refusal(str(error)) from error
        if first[:1] != ["cpu"] or len(ticks) < STAT_FIELDS:
            raise self._refusal("no line of CPU times")
        hertz = os.sysconf("SC_CLK_TCK")
        total = sum(ticks)
        idle = sum(ticks[i] for i in IDLE_FIELDS)
        return Reading(total / hertz, (total - idle) / hertz, time.process_time())

    def _refusal(self, what: str) -> Refusal:
        return Refusal(
            Reason.NOISE,
            f"foreign load cannot be read: {what}",
            subject=str(self.path),
            do="race on a machine whose kernel accounts CPU time per state",
        )
