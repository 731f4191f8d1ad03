"""Real races on this machine between arms whose true ratio is known by construction.

One arm repeats a small float32 product ``UNITS`` times, the other as often times the speed-up: at
1.00 it is an A/A race, at 1.01 and 1.05 the host does 1 % and 5 % more of the very same work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from race_rules import Call, race_rule

from flashrt.race.clock import MachineClock
from flashrt.race.decision import Decision
from flashrt.race.load import ProcStat
from flashrt.race.measure import race
from flashrt.race.protocol import CURRENT
from flashrt.race.series import PAIRS_PER_BLOCK, Stopped, ratios

UNITS = 100
SIDE = 160
BUDGET_S = 90.0


@dataclass(frozen=True)
class RealRace:
    """One race: the true speed-up, what was said, and whether foreign load took it."""

    speedup: float
    call: Call
    lost: bool

    def line(self) -> str:
        """One line of a log."""
        said = {"decision": self.call.decision.value, "pairs": self.call.pairs}
        return json.dumps({"speedup": self.speedup, **said, "lost": self.lost})

    @classmethod
    def of(cls, line: str) -> RealRace:
        """The inverse of :meth:`line`. Raises ``ValueError`` or ``KeyError`` for another line."""
        body = json.loads(line)
        call = Call(Decision(body["decision"]), int(body["pairs"]))
        return cls(float(body["speedup"]), call, bool(body["lost"]))


def arms(speedup: float) -> dict[str, Callable[[], None]]:
    """Host and treated arm over one set of operands, in one thread."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    left, right, out = (torch.randn(SIDE, SIDE) for _ in range(3))

    def repeated(units: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(units):
                torch.mm(left, right, out=out)

        return run

    return {"host": repeated(round(UNITS * speedup)), "treated": repeated(UNITS)}


def real_races(speedups: tuple[float, ...], races: int, seed: int) -> Iterator[RealRace]:
    """``races`` at every speed-up, in turns, so that no speed-up has the quiet hour to itself."""
    rule = race_rule(CURRENT, budget_s=BUDGET_S)
    for index in range(races):
        for speedup in speedups:
            rng = Random(f"{seed}:{index}:{speedup}")
            series = race(arms(speedup), MachineClock(), ProcStat(), rng, rule)
            _, decision = rule.consult(ratios(series.observed()))
            call = Call(decision, len(series.kept) * PAIRS_PER_BLOCK)
            yield RealRace(speedup, call, series.stopped is Stopped.NOISE)


def logged(races: Iterator[RealRace], log: Path) -> list[RealRace]:
    """Every race of the log so far and every new one, each appended as soon as it ended.

    Nothing is ever left out: a log that is continued another day counts whole. Ctrl-C ends it with
    the races that ended before.
    """
    seen = []
    if log.exists():
        seen = [RealRace.of(line) for line in log.read_text(encoding="utf-8").splitlines()]
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        for found in races:
            with log.open("a", encoding="utf-8") as file:
                file.write(found.line() + "\n")
            seen.append(found)
            judged = sum(not r.lost for r in seen)
            print(f"{len(seen)} races, {judged} judged; {found.line()}", flush=True)
    except KeyboardInterrupt:
        print("interrupted; the table holds the races that ended")
    return seen
