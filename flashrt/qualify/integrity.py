"""Every attack on the timed thing that is looked for after a race, and what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt.gate.integrity import Attack, Finding
from flashrt.qualify.deferred import Left, deferred
from flashrt.qualify.feed import Feed
from flashrt.qualify.settings import altered
from flashrt.qualify.timing import Raced

if TYPE_CHECKING:
    import torch

    from flashrt.qualify.arm import Treated
    from flashrt.qualify.operator_calls import Inputs
    from flashrt_runtime.capture import Stage

# Seen by the watch, in every run of the race.
BY_WATCH = (
    Attack.NO_OP_REPLAY,
    Attack.INPUT_MUTATION,
    Attack.STALE_ANSWER,
    Attack.PATCHED_CLOCK,
    Attack.FIRST_CALLS,
    Attack.TIMED_OUTPUT,
    Attack.HOST_CHANGED,
)
BY_REPLAY = (Attack.THREAD_WORK,)
BY_PROBE = (Attack.POINTER_MEMO, Attack.PART_MEMO, Attack.KEPT_OUTPUT)
NULL = "null race, "


@dataclass(frozen=True)
class Looked:
    """What one process has of one cell when its race is over.

    ``own`` are looks at the host from before any arm was built; ``races`` the null race and the
    race; ``same_after`` says whether the judged answers after the race were those before it.
    """

    own: Sequence[Left]
    treated: Stage
    feed: Feed
    races: tuple[Raced, Raced]
    same_after: bool


def look_for_attacks(looked: Looked, probed: Sequence[Finding] | None) -> dict[str, Any]:
    """What was looked for and what was found, as JSON without the process.

    ``probed`` is what :func:`probe_seams` found. Seams whose operator could not be called by
    itself (None) leave the probes' attacks out of what was looked for.
    """
    null, race = looked.races
    found = [Finding(f.attack, NULL + f.subject, f.detail) for f in null.findings]
    found += race.findings
    found += [
        Finding(Attack.HOST_CHANGED, "between the races", what)
        for what in altered(null.settings, race.settings)
    ]
    if not looked.same_after and not any(f.subject == "treated" for f in race.findings):
        detail = "its answers after the race are not those before it"
        found.append(Finding(Attack.FIRST_CALLS, "treated", detail))
    found += deferred(looked.own, looked.treated, looked.feed.turns)
    attacks = [*BY_WATCH, *BY_REPLAY]
    if _on_gpu(looked.treated):
        attacks.append(Attack.SIDE_STREAM)
    if probed is not None:
        found += probed
        attacks += BY_PROBE
    return {
        "looked_for": sorted(attack.label for attack in attacks),
        "findings": [finding.record() for finding in dict.fromkeys(found)],
    }


def _on_gpu(stage: Stage) -> bool:
    return any(window.is_cuda for window in stage.windows.values())


def _body(seat: Any) -> torch.nn.Module:
    body: torch.nn.Module = seat.seat_body
    return body


def _wire(
    bodies: Mapping[str, torch.nn.Module], inputs: dict[str, Inputs], treated: Treated
) -> None:
    """Give the readers of every chain what their own producer emits, as they are given it."""
    import torch

    at = {s.id: next(iter(s.members.values())) for s in treated.handle.seams}
    for chain in treated.chains:
        producer = at[chain["producer"]]
        args, named = inputs[producer]
        with torch.no_grad():
            sent = bodies[producer](*args, *named.values())
        for reader in (at[seam_id] for seam_id in chain["readers"]):
            args, named = inputs[reader]
            inputs[reader] = (sent, *args[1:], *list(named.values())[not args :]), {}


def probe_seams(
    host: torch.nn.Module,
    treated: Treated,
    seams: Sequence[dict[str, Any]],
    tokens: torch.Tensor,
) -> list[Finding] | None:
    """Findings of every bound seam's operator; None when one of them could not be recorded.

    ``tokens [rows]`` are real ones: operators are probed on the activations that they make in the
    host.
    """
    import torch

    from flashrt.qualify.operator_calls import operator_calls, seen_inputs
    from flashrt.qualify.purity import probe

    bound = [seam["seam"] for seam in seams if seam["seam"]["id"] in treated.operators]
    paths = [path for seam in bound for path in seam["members"].values()]
    device = next(host.parameters()).device
    with torch.no_grad(), seen_inputs(host, paths) as inputs:
        host(input_ids=tokens[None].to(device), use_cache=False)
    bodies = {path: _body(treated.model.get_submodule(path)) for path in paths}
    _wire(bodies, inputs, treated)
    calls = operator_calls(bodies, inputs, treated.operators)
    if set(calls) != set(treated.operators):
        return None
    return [finding for call in calls.values() for finding in probe(call)]
