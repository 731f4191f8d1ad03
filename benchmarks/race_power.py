"""How often races promote what they should not, and find what they should: one table.

Simulated machines that are quiet, noisy, drift, spike and remember, beside peers' rules; with
``--real N`` also N real races on this machine at each of the true speed-ups 1.00, 1.01 and 1.05;
with ``--docs`` the tables of ``docs/statistics.md`` are written anew. Rates of false promotion have
their one-sided 95 % Clopper–Pearson bound.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median

from race_machine import WEATHERS, Machine, Weather
from race_real import RealRace, logged, real_races
from race_rules import ALPHA, MARGIN, RULES, Call, race_rule

from flashrt.race.certificate import agreed
from flashrt.race.decision import Decision
from flashrt.race.power import least_share, lower_bound, upper_bound
from flashrt.race.protocol import CURRENT

DOCS = Path(__file__).resolve().parent.parent / "docs" / "statistics.md"
LOG = Path(".flashrt/race_real.jsonl")
SPEEDUPS = (0.99, 1.0, 1.01, 1.02, 1.03, 1.05)
REAL_SPEEDUPS = (1.0, 1.01, 1.05)
HARMLESS = 1.01  # a promotion at a true speed-up up to this one is false
WITHIN = 100
LAYOUT = 0.01  # standard deviation of what a process's layout does to its ratio
PROCESSES = 3
PEER_RUNS = 200
POWER_RUNS = 300
OURS, FIRST = "flashrt", "flashrt, first protocol"


@dataclass(frozen=True)
class Line:
    """One line of a table: where, the true speed-up, and what a rule said each time."""

    weather: str
    speedup: float
    rule: str
    calls: tuple[Call, ...]

    @property
    def promoted(self) -> int:
        """How often the treated arm was promoted."""
        return sum(call.decision is Decision.WIN for call in self.calls)

    @property
    def within(self) -> int:
        """How often it was promoted within 100 pairs."""
        return sum(c.decision is Decision.WIN and c.pairs <= WITHIN for c in self.calls)


def _simulate(job: tuple[Weather, float, str, int]) -> Line:
    weather, speedup, rule, runs = job
    place = f"{weather.name}:{speedup}"
    calls = []
    for index in range(runs):
        seed = Random(f"{place}:{index}").getrandbits(60)  # the same machine for every rule
        calls.append(RULES[rule](Machine(weather, speedup, seed), seed))
    return Line(weather.name, speedup, rule, tuple(calls))


def simulated(runs: int, workers: int) -> list[Line]:
    """Every weather, speed-up and rule; ours ``runs`` times where a promotion is false."""

    def count(rule: str, speedup: float) -> int:
        if rule != OURS:
            return min(runs, PEER_RUNS)
        return runs if speedup <= HARMLESS else min(runs, POWER_RUNS)

    jobs = [
        (weather, speedup, rule, count(rule, speedup))
        for weather in WEATHERS
        for speedup in SPEEDUPS
        for rule in RULES
    ]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(_simulate, jobs, chunksize=4))


def _certificate(job: tuple[float, int]) -> tuple[float, int, int, int]:
    speedup, runs = job
    luck = Random(f"layout:{speedup}")
    single = certified = 0
    for index in range(runs):
        decisions = []
        for process in range(PROCESSES):
            own = speedup * 2.718281828 ** luck.gauss(0.0, LAYOUT)
            seed = Random(f"{speedup}:{index}:{process}").getrandbits(60)
            decisions.append(RULES[OURS](Machine(WEATHERS[0], own, seed), seed).decision)
        single += decisions[0] is Decision.WIN
        certified += agreed(decisions, PROCESSES)
    return speedup, single, certified, runs


def _rate(hits: int, runs: int) -> str:
    return f"{hits / runs:.3f}".rstrip("0").rstrip(".") if 0 < hits < runs else str(hits // runs)


def _bounded(hits: int, runs: int, harmless: bool) -> str:
    if harmless:
        return f"{hits} of {runs} (≤ {upper_bound(hits, runs) * 100:.2f} %)"
    return f"{_rate(hits, runs)} (≥ {lower_bound(hits, runs):.3f})"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def power_table(lines: Sequence[Line]) -> str:
    """Promotion rates: ours with bounds, within 100 pairs and pairs to decision; then the peers."""
    by = {(line.weather, line.speedup, line.rule): line for line in lines}
    peers = [rule for rule in RULES if rule != OURS]
    head = ["machine", "true", "flashrt promotes", "within 100 pairs", "pairs, median"]
    head += ["first protocol within 100", *peers]
    rows = []
    for weather in WEATHERS:
        for speedup in SPEEDUPS:
            own = by[weather.name, speedup, OURS]
            runs = len(own.calls)
            first = by[weather.name, speedup, FIRST]
            theirs = [by[weather.name, speedup, rule] for rule in peers]
            rows.append(
                [
                    weather.name if speedup == SPEEDUPS[0] else "",
                    f"{speedup:.2f}",
                    _bounded(own.promoted, runs, speedup <= MARGIN),
                    _rate(own.within, runs),
                    f"{median(call.pairs for call in own.calls):.0f}",
                    _rate(first.within, len(first.calls)),
                    *(_rate(line.promoted, len(line.calls)) for line in theirs),
                ]
            )
    return _markdown(head, rows)


def certificate_table(runs: int, workers: int) -> str:
    """One process against three that must agree, when every process has its own layout luck."""
    with ProcessPoolExecutor(workers) as pool:
        found = list(pool.map(_certificate, [(s, runs) for s in (1.0, 1.01, 1.03, 1.05)]))
    rows = [
        [f"{s:.2f}", _bounded(one, n, s <= HARMLESS), _bounded(all_of, n, s <= HARMLESS)]
        for s, one, all_of, n in found
    ]
    return _markdown(("true", "one process", "three that agree"), rows)


def real_table(races: Sequence[RealRace]) -> str:
    """Real races: promotions with their bound, lost ones aside, and pairs to decision."""
    rows = []
    for speedup in REAL_SPEEDUPS:
        here = [r for r in races if r.speedup == speedup]
        judged = [r.call for r in here if not r.lost]
        promoted = sum(call.decision is Decision.WIN for call in judged)
        early = sum(c.decision is Decision.WIN and c.pairs <= WITHIN for c in judged)
        rows.append(
            [
                f"{speedup:.2f}",
                str(len(here)),
                str(len(here) - len(judged)),
                _bounded(promoted, len(judged), speedup <= HARMLESS) if judged else "–",
                _rate(early, len(judged)) if judged else "–",
                f"{median(call.pairs for call in judged):.0f}" if judged else "–",
            ]
        )
    harmless = [r.call for r in races if r.speedup <= HARMLESS and not r.lost]
    hits = sum(call.decision is Decision.WIN for call in harmless)
    told = _bounded(hits, len(harmless), harmless=True) if harmless else "–"
    rows.append(["≤ 1.01", str(len(harmless)), "", told, "", ""])
    head = (
        "true",
        "races",
        "lost to foreign load",
        "promoted",
        "within 100 pairs",
        "pairs, median",
    )
    return _markdown(head, rows)


def _replace(name: str, text: str) -> None:
    first, last = f"<!-- race_power {name}: begin -->", f"<!-- race_power {name}: end -->"
    body = DOCS.read_text(encoding="utf-8")
    before, _, rest = body.partition(first)
    _, _, after = rest.partition(last)
    if not after:
        raise SystemExit(f"{DOCS.name} has no place for the {name} table")
    DOCS.write_text(f"{before}{first}\n{text}\n{last}{after}", encoding="utf-8")


def _show(name: str, text: str, docs: bool) -> None:
    print(f"\n## {name}\n\n{text}", flush=True)
    if docs:
        _replace(name, text)


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    add: Callable[..., object] = parser.add_argument
    add("--runs", type=int, default=1000, help="simulated races of ours per line; 0 for none")
    add("--real", type=int, default=0, metavar="N", help="real races at each true speed-up")
    add("--log", type=Path, default=LOG, help="real races, kept and continued")
    add("--seed", type=int, default=0, help="seed of the real races' orders")
    add("--workers", type=int, default=2, help="processes that simulate")
    add("--docs", action="store_true", help="write the tables into docs/statistics.md")
    told = parser.parse_args()
    share = least_share(race_rule(CURRENT).test, WITHIN)
    print(
        f"alpha {ALPHA}, first attempt; power 0.95 within {WITHIN} pairs where {share:.3f} of the"
    )
    print(f"blocks are past the margin; {platform.machine()}, {platform.system()}")
    if told.runs:
        _show("simulated", power_table(simulated(told.runs, told.workers)), told.docs)
        _show("certificate", certificate_table(told.runs, told.workers), told.docs)
    if told.real:
        races = logged(real_races(REAL_SPEEDUPS, told.real, told.seed), told.log)
        _show("real", real_table(races), told.docs)


if __name__ == "__main__":
    main()
