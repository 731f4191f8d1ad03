"""One race in one fresh process: what a kernel author looks at. It earns nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flashrt.gate.thresholds import Thresholds
from flashrt.qualify.job import Job
from flashrt.qualify.prepare import Prepared
from flashrt.qualify.processes import run_process
from flashrt.qualify.request import Budget, CellRequest
from flashrt.qualify.unserved import unserved
from flashrt.race.decision import Decision, Interval
from flashrt.race.series import PAIRS_PER_BLOCK, ratios
from flashrt_runtime.reason import Because, Reason, Refusal


@dataclass(frozen=True)
class Seen:
    """What one race showed: intervals of time ratios host / treated, and host / host."""

    race: Interval | None
    null: Interval | None
    decision: Decision
    foreign: float
    pairs: int
    setup_s: Mapping[str, float]
    reasons: tuple[Because, ...] = ()

    @property
    def decided(self) -> bool:
        """Whether the race ended with an answer, fast or slow, that nothing speaks against."""
        return self.decision is not Decision.OPEN and not self.reasons


def race_once(
    prepared: Prepared,
    request: CellRequest,
    budget: Budget,
    say: Callable[[str], None],
    run: Callable[[Job, Callable[[str], None]], dict[str, Any]] = run_process,
) -> Seen:
    """Race one cell in one process. Raises :class:`Refusal` when the plan binds no seam."""
    from flashrt.receipt.spec_gates import catalog_gates

    plan = prepared.plan(request)
    if not any(s["outcome"] == "bind" for s in plan["seams"]):
        why = unserved(plan, request)[0]
        raise Refusal(why.reason, why.detail, subject=request.label)
    name, _, version = plan["binding_manifest"]["pipeline"]["structure"].partition("@")
    gates = catalog_gates(name, int(version))
    if gates is None:
        raise Refusal(Reason.STRUCTURE, "the pipeline's spec is gone", subject=name)
    thresholds = Thresholds(
        margin=gates.margin,
        metric=gates.metric,
        band_pass=gates.band_pass,
        band_warn=gates.band_warn,
        null_width=gates.margin,
    )
    job = Job(
        host=prepared.host_reference,
        frames=prepared.frames_reference,
        cells=(request,),
        plans={request.label: plan},
        budget=budget,
        rules={request.label: thresholds.record()},
        held_out=prepared.held_out,
        seed=prepared.seed,
        process=1,
    )
    return read_fragment(run(job, say)[request.label], thresholds)


def read_fragment(fragment: Mapping[str, Any], thresholds: Thresholds) -> Seen:
    """The race and its null from one process's evidence."""
    from flashrt.gate.integrity import read_integrity
    from flashrt.gate.samples import Sequence, read_series, replay
    from flashrt.race.decision import PastMargin

    if "refused" in fragment:
        because = Because.from_record(fragment["refused"])
        return Seen(None, None, Decision.OPEN, 0.0, 0, {}, (because,))
    race = read_series(fragment["race"], "$.race")
    null = read_series(fragment["null"], "$.null")
    rule = Sequence(
        PastMargin(thresholds.margin),
        thresholds.test,
        thresholds.foreign_limit,
    )
    outcome = replay(race, rule, "$.race")
    foreign = [block.foreign for block in race.blocks]
    noted = fragment.get("integrity")
    integrity = read_integrity(noted, "$.integrity").reasons() if noted else []
    return Seen(
        race=outcome.seen,
        null=thresholds.test.interval(ratios(null.observed())),
        decision=outcome.decision,
        foreign=max(foreign, default=0.0),
        pairs=len(race.kept) * PAIRS_PER_BLOCK,
        setup_s=fragment["setup_s"],
        reasons=tuple(integrity),
    )
