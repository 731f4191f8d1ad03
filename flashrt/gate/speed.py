"""Is the treated arm faster, and was the machine fit to say so? Statistics, and reasons if not."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Any

from flashrt.gate.evidence import Evidence
from flashrt.gate.samples import Outcome, Sequence, replay
from flashrt.gate.thresholds import Thresholds
from flashrt.race.certificate import agreed, headline
from flashrt.race.decision import Decision, Interval, Narrow, PastMargin, median
from flashrt.race.diagnose import diagnose
from flashrt.race.series import Stopped
from flashrt_runtime.reason import Because, Reason


@dataclass(frozen=True)
class Speed:
    """Both races of every process, replayed under the declared rule."""

    nulls: tuple[Outcome, ...]
    races: tuple[Outcome, ...]

    def seen(self) -> list[Interval]:
        """Intervals of the processes whose race has one."""
        return [race.seen for race in self.races if race.seen is not None]


def measure(evidence: Evidence, thresholds: Thresholds) -> Speed:
    """Replay every series. Raises :class:`~flashrt.gate.reading.Malformed`."""
    rest = (thresholds.test, thresholds.foreign_limit)
    null_rule = Sequence(Narrow(thresholds.null_width), *rest)
    race_rule = Sequence(PastMargin(thresholds.margin), *rest)
    nulls, races = [], []
    for i, run in enumerate(evidence.processes):
        path = f"$.evidence.processes[{i}]"
        nulls.append(replay(run.null, null_rule, f"{path}.null"))
        races.append(replay(run.race, race_rule, f"{path}.race"))
    return Speed(tuple(nulls), tuple(races))


def _null(speed: Speed, evidence: Evidence) -> list[Because]:
    found = []
    for run, outcome in zip(evidence.processes, speed.nulls, strict=True):
        if outcome.decision is Decision.WIN:
            continue
        subject = f"null race, process {run.process}"
        if outcome.seen is None:
            detail = "too few samples for an interval"
        elif outcome.decision is Decision.LOSS:
            detail = f"{outcome.seen.low:.4f} to {outcome.seen.high:.4f} does not contain 1"
        else:
            detail = f"{outcome.seen.low:.4f} to {outcome.seen.high:.4f} is too wide"
        found.append(Because(Reason.NOISE, detail, subject))
    return found


def _race(speed: Speed, evidence: Evidence, thresholds: Thresholds) -> list[Because]:
    found = []
    for run, outcome in zip(evidence.processes, speed.races, strict=True):
        subject = f"race, process {run.process}"
        if outcome.decision is Decision.WIN:
            continue
        bounds = (
            "too few samples for an interval"
            if outcome.seen is None
            else f"{outcome.seen.low:.4f} to {outcome.seen.high:.4f}"
        )
        detail = f"{bounds} against a margin of {thresholds.margin:g}"
        if outcome.decision is Decision.LOSS:
            found.append(Because(Reason.LOSS, detail, subject))
        elif outcome.stopped is Stopped.NOISE:
            lost = f"foreign load took the budget; {detail}"
            found.append(Because(Reason.NOISE, lost, subject))
        else:
            found.append(Because(Reason.AMBIGUOUS, f"undecided: {detail}", subject))
    decisions = [outcome.decision for outcome in speed.races]
    if not found and not agreed(decisions, thresholds.processes):
        detail = f"{len(decisions)} of {thresholds.processes} processes were measured"
        found.append(Because(Reason.INCOMPLETE, detail, "processes"))
    return found


def shortfalls(speed: Speed, evidence: Evidence, thresholds: Thresholds) -> list[Because]:
    """Why a correct cell is not ``certified_fast``, in a fixed order; empty if nothing is."""
    return _null(speed, evidence) + _race(speed, evidence, thresholds)


def implausible(evidence: Evidence) -> list[Because]:
    """Processes whose treated arm beat the roofline of its own cost: the work was not done."""
    least = evidence.cost.least_ns()
    found = []
    for run in evidence.processes:
        blocks = run.race.observed()
        if not blocks:
            continue
        treated = median([float(b) for block in blocks for _, b in block.pairs])
        if not (treated >= least):
            detail = f"{treated:.0f} ns a step, and the roofline allows {least:.0f} ns"
            found.append(Because(Reason.IMPLAUSIBLE, detail, f"process {run.process}"))
    return found


def _ratio(pairs: Many[tuple[int, int]]) -> float:
    return median([other / first for first, other in pairs])


def statistics(speed: Speed, evidence: Evidence, thresholds: Thresholds) -> dict[str, Any]:
    """The numbers of both races, as a receipt holds them.

    ``dtype_ratio`` is the time of the host in that dtype over the treated arm's: what the win is
    worth to somebody who would have run the host in that dtype.
    """
    head = headline(speed.seen())
    nulls = [null.seen for null in speed.nulls if null.seen is not None]
    ratios: dict[str, float | None] = {
        dtype: head.median * _ratio(pairs) if head else None
        for dtype, pairs in sorted(evidence.dtype_hosts.items())
    }
    return {
        "speedup": head.record() if head else None,
        "process_medians": [p.median for p in speed.seen()],
        "process_low": [p.low for p in speed.seen()],
        "null": {"low": min(n.low for n in nulls), "high": max(n.high for n in nulls)}
        if nulls
        else None,
        "dtype_ratio": ratios,
        "diagnosis": [
            {
                "process": run.process,
                "null": diagnose(run.null, thresholds.protocol).record(),
                "race": diagnose(run.race, thresholds.protocol).record(),
            }
            for run in evidence.processes
        ],
    }
