"""Races between captured stages, with real tokens rotated between samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from flashrt.qualify.feed import Feed
from flashrt.qualify.job import Job
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt.race.rule import Rule
    from flashrt_runtime.capture import Stage

DTYPE_LOOKS = (20,)


def race_stages(
    job: Job, rule: Rule, feed: Feed, stages: tuple[Stage, Stage], *, salt: str
) -> dict[str, Any]:
    """Race two captured stages (first: the host) and return the series' JSON form.

    Inputs are written before each run, outside the timed region, from one rotation of real tokens
    that both arms draw from. The seed differs by process, so that block orders do.
    """
    from flashrt.race.clock import MachineClock
    from flashrt.race.load import ProcStat
    from flashrt.race.measure import race

    host, other = stages
    named = {"host": host, "other": other}

    last: dict[str, torch.Tensor] = {}

    def before(arm: str, _sample: int) -> None:
        feed.load([named[arm]])
        if arm in last:
            last[arm].fill_(math.nan)  # a replay that writes nothing returns this

    rng = Random(f"{job.seed}:{job.process}:{salt}")
    arms = {name: _once(stage, name, last) for name, stage in named.items()}
    series = race(arms, MachineClock(), ProcStat(), rng, rule, before=before)
    poisoned = [name for name, output in last.items() if not bool(output.isfinite().all())]
    if poisoned:
        what = "a replay in the race returned the poison that its last output was filled with"
        raise Refusal(Reason.NEVER_CALLED, what, subject=poisoned[0])
    return series.record()


def _once(stage: Stage, name: str, last: dict[str, torch.Tensor]) -> Callable[[], None]:
    """One run over the windows as they are: what a deployment does once inputs are in place."""

    def run() -> None:
        last[name] = stage.replay()

    return run


def against_treated(
    job: Job, label: str, feed: Feed, host: Stage, treated: Stage
) -> dict[str, Any]:
    """The race that decides a cell."""
    from flashrt.gate.thresholds import read_thresholds

    rule = read_thresholds(job.rules[label]).race_rule(job.budget.seconds, job.budget.pairs)
    return race_stages(job, rule, feed, (host, treated), salt=label)


def against_itself(job: Job, label: str, feed: Feed, host: Stage) -> dict[str, Any]:
    """The null control: the host against itself under the same rule."""
    from flashrt.gate.thresholds import read_thresholds

    rule = read_thresholds(job.rules[label]).null_rule(job.budget.seconds, job.budget.pairs)
    return race_stages(job, rule, feed, (host, host), salt=f"null:{label}")


def against_dtype(job: Job, label: str, feed: Feed, host: Stage, other: Stage) -> list[list[int]]:
    """Kept pairs ``[host ns, other ns]`` of the host in another dtype: reported, never judged."""
    from flashrt.gate.thresholds import read_thresholds

    declared = read_thresholds(job.rules[label]).race_rule(job.budget.seconds, DTYPE_LOOKS[-1])
    rule = replace(declared, looks=DTYPE_LOOKS)
    series = race_stages(job, rule, feed, (host, other), salt="dtype")
    kept = [block["kept"] for block in series["blocks"] for _ in range(2)]
    return [pair for pair, use in zip(series["pairs"], kept, strict=True) if use]
