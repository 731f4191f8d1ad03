"""Races between captured stages, with real tokens rotated between samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

from flashrt.gate.integrity import Finding
from flashrt.qualify.feed import Feed
from flashrt.qualify.job import Job
from flashrt.qualify.watch import Answered, Watch
from flashrt.qualify.witness import HeldClock, clock_findings, kernel_ns

if TYPE_CHECKING:
    from flashrt.race.rule import Rule

DTYPE_LOOKS = (20,)


@dataclass(frozen=True)
class Raced:
    """One race: the series' JSON form, what the watch saw, and the seconds that are in no sample.

    ``pre_hooks_s`` is the time before runs of each arm; ``overhead_s`` what else the race spent
    outside of its samples; ``settings`` what the process ran under when it began.
    """

    series: dict[str, Any]
    findings: tuple[Finding, ...]
    pre_hooks_s: dict[str, float]
    overhead_s: float
    settings: Mapping[str, object] = field(default_factory=dict)

    def outside(self, bind_s: float) -> dict[str, Any]:
        """The record of time that is in neither arm's samples."""
        host, treated = self.pre_hooks_s.values()
        return {
            "bind": bind_s,
            "pre_hooks": {"host": host, "treated": treated},
            "host_overhead": self.overhead_s,
        }


def race_stages(
    job: Job, rule: Rule, feed: Feed, arms: tuple[Answered, Answered], *, salt: str
) -> Raced:
    """Race two captured stages (first: the host).

    Before each run, outside the timed region, the watch checks the last output against what was
    judged, poisons it, and writes the next real tokens. The seed differs by process, so that
    block orders do. The clock is held from before any impl was loaded.
    """
    from flashrt.race.load import ProcStat
    from flashrt.race.measure import race

    watch = Watch(feed, {"host": arms[0], "treated": arms[1]})
    clock = HeldClock()
    rng = Random(f"{job.seed}:{job.process}:{salt}")
    timed = {name: watch.arm(name) for name in watch.arms}
    held, machine = clock.now_ns(), kernel_ns()
    series = race(timed, clock, ProcStat(), rng, rule, before=watch.before)
    watch.settle()
    held, machine = clock.now_ns() - held, kernel_ns() - machine
    record = series.record()
    in_samples = sum(sum(pair) for pair in record["pairs"]) * record["repeat"]
    hooks = {name: ns / 1e9 for name, ns in watch.hooks_ns.items()}
    overhead = max(0.0, (held - in_samples) / 1e9 - sum(hooks.values()))
    found = [*watch.findings(), *clock_findings(held, machine, "race")]
    return Raced(record, tuple(dict.fromkeys(found)), hooks, overhead, watch.held)


def against_treated(job: Job, label: str, feed: Feed, host: Answered, treated: Answered) -> Raced:
    """The race that decides a cell."""
    from flashrt.gate.thresholds import read_thresholds

    rule = read_thresholds(job.rules[label]).race_rule(job.budget.seconds, job.budget.pairs)
    return race_stages(job, rule, feed, (host, treated), salt=label)


def against_itself(job: Job, label: str, feed: Feed, host: Answered) -> Raced:
    """The null control: the host against itself under the same rule, watched in the same way."""
    from flashrt.gate.thresholds import read_thresholds

    rule = read_thresholds(job.rules[label]).null_rule(job.budget.seconds, job.budget.pairs)
    return race_stages(job, rule, feed, (host, host), salt=f"null:{label}")


def against_dtype(
    job: Job, label: str, feed: Feed, host: Answered, other: Answered
) -> list[list[int]]:
    """Kept pairs ``[host ns, other ns]`` of the host in another dtype: reported, never judged."""
    from flashrt.gate.thresholds import read_thresholds

    declared = read_thresholds(job.rules[label]).race_rule(job.budget.seconds, DTYPE_LOOKS[-1])
    rule = replace(declared, looks=DTYPE_LOOKS)
    series = race_stages(job, rule, feed, (host, other), salt="dtype").series
    kept = [block["kept"] for block in series["blocks"] for _ in range(2)]
    return [pair for pair, use in zip(series["pairs"], kept, strict=True) if use]
