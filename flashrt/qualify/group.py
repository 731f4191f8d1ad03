"""One group of cells that share a captured host step: the controls, the races, the parity."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt.qualify.arm import Treated, build_treated
from flashrt.qualify.controls import eager_digest, empty_control, poison, two_steps
from flashrt.qualify.counted import counted
from flashrt.qualify.deferred import Left, looks
from flashrt.qualify.feed import Feed, logits_of
from flashrt.qualify.integrity import Looked, look_for_attacks, probe_seams
from flashrt.qualify.job import Job
from flashrt.qualify.request import CellRequest
from flashrt.qualify.timing import Raced, against_dtype, against_itself, against_treated
from flashrt.qualify.watch import Answered, answers_of
from flashrt.qualify.window_record import window_record

if TYPE_CHECKING:
    import torch

    from flashrt.host import Host
    from flashrt_runtime.capture import Stage

Say = Callable[[str], None]
WATCHED = 2  # frames whose answers are known to a process that judges no parity


@dataclass(frozen=True)
class Captured:
    """A captured step, the step itself, and the seconds that its capture took (in neither arm's
    time)."""

    stage: Stage
    step: torch.nn.Module
    setup_s: float


@dataclass(frozen=True)
class Group:
    """What the cells of one group share.

    ``before`` is the digest of the host's own logits, taken before any arm was built over its
    weights; ``references`` the host's logits of every judged frame (in the first process), or of
    those whose timed outputs are checked; ``answers`` their digests; ``nulls`` null races by cell
    label; ``own`` looks at what the host leaves behind; ``followed`` how its captured step follows
    its windows.
    """

    job: Job
    host: Host
    rows: int
    context: int
    captured: Captured
    frames: dict[str, torch.Tensor]
    feed: Feed
    shared: dict[str, Any]
    before: str
    nulls: dict[str, Raced]
    references: dict[str, torch.Tensor]
    answers: Answered
    own: list[Left]
    followed: dict[str, Any]


def capture_step(
    model: torch.nn.Module, rows: int, context: int, name: str, form: tuple[str, ...] = ("compile",)
) -> Captured:
    """Capture one whole step over a static cache in the form the deployment uses."""
    from flashrt_runtime.capture import capture
    from flashrt_runtime.decode.step import DecodeStep

    started = time.perf_counter()
    step = DecodeStep(model, batch=1, rows=rows, context=context)
    stage = capture(step, step.windows(), form=form, name=name)
    step.reset()
    return Captured(stage, step, time.perf_counter() - started)


def measure_group(
    job: Job, host: Host, cells: list[CellRequest], say: Say, place: tuple[int, int] = (1, 1)
) -> dict[str, Any]:
    """Evidence of every cell of the group, by label. ``place`` is the group's number, of how many:
    each captures the host anew."""
    from flashrt.qualify.frames import judged_frames

    rows, context = cells[0].rows, cells[0].context
    drawn = judged_frames(
        host.tokenizer,
        frames=job.frames,
        held_out=job.held_out,
        budget=job.budget,
        rows=rows,
        context=context,
        seed=job.seed,
    )
    frames = {frame.id: frame.token_ids for frame in drawn}
    first = next(iter(frames.values()))[:-1]
    before = eager_digest(host.model, first[: max(16, rows)])
    say(f"capture the host: {place[0]} of {place[1]}, {cells[0].phase} of {rows}")
    captured = capture_step(
        host.model, rows, context, f"host_{cells[0].phase}_{rows}", cells[0].sequence
    )
    control = empty_control(captured.stage, first, rows)
    watched = frames if job.process == 0 else dict(list(frames.items())[:WATCHED])
    references = {
        n: logits_of(captured.stage, watched[n][:-1], rows)
        for n in counted(say, "reference logits, held-out frames", watched)
    }
    answers = Answered(captured.stage, answers_of(references, rows))
    feed = Feed({name: tokens[:-1] for name, tokens in frames.items()}, rows, context)
    shared = {
        "empty_control": {"process": job.process, "digests": control},
        "dtype_hosts": _other_dtypes(job, cells[0], answers, feed, say),
        "judged": [frame.record() for frame in drawn],
    }
    group = Group(
        job=job,
        host=host,
        rows=rows,
        context=context,
        captured=captured,
        frames=frames,
        feed=feed,
        shared=shared,
        before=before,
        nulls=_nulls(job, cells, answers, feed, say),
        references=references,
        answers=answers,
        own=looks(captured.stage, feed.turns),
        followed=window_record("host", captured.stage, captured.step, feed, job.process),
    )
    return {cell.label: measure_cell(group, cell, say) for cell in cells}


def _nulls(
    job: Job, cells: list[CellRequest], host: Answered, feed: Feed, say: Say
) -> dict[str, Raced]:
    """A null race for every cell: one for all cells that declare the same thresholds.

    A cell that was tried before has less of alpha to spend, so its series ends by another rule.
    """
    by_rule: dict[str, Raced] = {}
    found = {}
    for cell in cells:
        rule = json.dumps(job.rules[cell.label], sort_keys=True)
        if rule not in by_rule:
            say(f"null race: {cell.phase} of {cell.rows}")
            by_rule[rule] = against_itself(job, cell.label, feed, host)
        found[cell.label] = by_rule[rule]
    return found


def measure_cell(group: Group, cell: CellRequest, say: Say) -> dict[str, Any]:
    """Evidence of one cell in this process.

    A seam that cannot be bound, a step that cannot be captured and an output that cannot be
    compared are evidence too: they refuse this cell and no other.
    """
    from flashrt_runtime.reason import Refusal

    null = group.nulls[cell.label].series
    fragment = {**group.shared, "process": group.job.process, "null": null}
    try:
        return {**fragment, **_measured(group, cell, say)}
    except Refusal as refusal:
        return {**fragment, "refused": refusal.because().record()}


def _measured(group: Group, cell: CellRequest, say: Say) -> dict[str, Any]:
    job, rows = group.job, group.rows
    plan = job.plans[cell.label]
    seams = plan["seams"]
    started = time.perf_counter()
    treated = build_treated(group.host.model, seams, rows, plan.get("chains", ()))
    bind_s = time.perf_counter() - started
    fragment: dict[str, Any] = {}
    say(f"capture {cell.label} ({len(treated.operators)} seams)")
    captured = capture_step(treated.model, rows, group.context, cell.label, cell.sequence)
    stage = captured.stage
    frames = list(group.frames.values())
    steps = two_steps(frames, rows)
    first = poison(stage, steps, rows, group.context)
    before = {
        n: logits_of(stage, group.frames[n][:-1], rows)
        for n in counted(say, f"parity {cell.label}, frames", group.references)
    }
    if job.process == 0:
        fragment["parity_before"] = _parity(group, before)
    answers = Answered(stage, answers_of(before, rows))
    say(f"race {cell.label}")
    raced = against_treated(job, cell.label, group.feed, group.answers, answers)
    fragment["race"] = raced.series
    # Again after the race, in every process: an arm may be right for its first calls only.
    after = {n: logits_of(stage, group.frames[n][:-1], rows) for n in group.references}
    if job.process == 0:
        fragment["parity_after"] = _parity(group, after)
    last = poison(stage, steps, rows, group.context)
    same = answers_of(after, rows) == answers.answers
    fragment["poison"] = {
        "process": job.process,
        "outputs_rewritten": first["outputs_rewritten"] and last["outputs_rewritten"] and same,
        "inputs_honoured": first["inputs_honoured"] and last["inputs_honoured"],
    }
    say(f"integrity {cell.label}")
    null = group.nulls[cell.label]
    looked = Looked(group.own, stage, group.feed, (null, raced), same)
    fragment["integrity"] = {
        "process": job.process,
        **look_for_attacks(looked, probe_seams(group.host.model, treated, seams, frames[0][:rows])),
    }
    fragment["window_check"] = [
        group.followed,
        window_record("treated", stage, captured.step, group.feed, job.process),
    ]
    fragment["path"] = _path(job.process, treated, stage)
    fragment["machine"] = {"load_before": os.getloadavg()[0]}
    fragment["setup_s"] = {"host": group.captured.setup_s, "treated": captured.setup_s}
    fragment["outside_s"] = raced.outside(bind_s)
    fragment["resources"] = {
        "weight_bytes_host": treated.host_weight_bytes,
        "weight_bytes_treated": treated.weight_bytes,
    }
    fragment["notes"] = _common_notes(treated)
    treated.handle.detach()
    left = eager_digest(treated.model, frames[0][:-1][: max(16, rows)])
    fragment["rollback"] = {"process": job.process, "digests": [group.before, left]}
    return fragment


def _parity(group: Group, answered: dict[str, torch.Tensor]) -> list[dict[str, Any]]:
    from flashrt.gate.parity import distribution_window

    return [
        distribution_window(name, group.references[name], logits, group.frames[name][1:])
        for name, logits in answered.items()
    ]


def _path(process: int, treated: Treated, stage: Stage) -> dict[str, Any]:
    report = treated.handle.summary()
    chains = treated.chains
    return {
        "process": process,
        "expected": dict(treated.operators),
        "graph_calls": {
            seam: stage.seam_operators.get(seam, {}).get(operator, 0)
            for seam, operator in treated.operators.items()
        },
        "replays": stage.replays,
        "dispatched": report["dispatched"],
        "fallbacks": report["fallbacks"],
        **({"chains": chains} if chains else {}),
    }


def _common_notes(treated: Treated) -> dict[str, str]:
    merged: dict[str, set[str]] = {}
    for notes in treated.notes.values():
        for key, value in notes.items():
            merged.setdefault(key, set()).add(value)
    return {key: "|".join(sorted(values)) for key, values in sorted(merged.items())}


def _other_dtypes(
    job: Job, cell: CellRequest, host: Answered, feed: Feed, say: Say
) -> list[dict[str, Any]]:
    """Paired samples of the host against itself in bfloat16, in the first process only."""
    from flashrt.host import load_host

    if job.process != 0:
        return []
    say(f"capture the host in bfloat16: {cell.rows} rows")
    other = load_host(job.host, dtype="bfloat16")
    name = f"host_bfloat16_{cell.rows}"
    stage = capture_step(other.model, cell.rows, cell.context, name, cell.sequence).stage
    pairs = against_dtype(job, cell.label, feed, host, Answered(stage, {}))
    return [{"dtype": "bfloat16", "pairs": pairs}] if pairs else []
