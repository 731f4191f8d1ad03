"""The one decision that counts: both arms captured in the deployment's form, and raced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.swap import Swap


def decide(
    model: torch.nn.Module,
    swaps: Sequence[Swap],
    step: Callable[..., Any],
    windows: dict[str, torch.Tensor],
    seconds: float,
) -> Because | None:
    """``None`` when the treated arm wins past the margin, else the reason it is not attached.

    The arms are two copies of the module tree over one set of weights; ``model`` is not touched.
    """
    from flashrt.qualify.arm import share_weights
    from flashrt_runtime.swap import attach

    host_arm, treated_arm = share_weights(model), share_weights(model)
    handle = attach(treated_arm, swaps)
    try:
        return _raced(host_arm, treated_arm, swaps, step, windows, seconds=seconds)
    finally:
        handle.detach()


def _raced(
    host_arm: torch.nn.Module,
    treated_arm: torch.nn.Module,
    swaps: Sequence[Swap],
    step: Callable[..., Any],
    windows: dict[str, torch.Tensor],
    *,
    seconds: float,
) -> Because | None:
    from flashrt.gate.thresholds import ALPHA
    from flashrt.race.clock import MachineClock
    from flashrt.race.decision import Decision, PastMargin, alpha_of_attempt
    from flashrt.race.load import ProcStat
    from flashrt.race.measure import race
    from flashrt.race.rule import Rule
    from flashrt.race.series import ratios
    from flashrt.spec import load
    from flashrt_runtime.capture import capture

    try:
        host = capture(lambda **given: step(host_arm, **given), windows, name="host")
        treated = capture(lambda **given: step(treated_arm, **given), windows, name="treated")
    except Refusal as refusal:
        return refusal.because()
    missing = [s.seam.id for s in swaps if treated.operators.get(s.seam.id) != 1]
    if missing:
        told = "its operator is not in the captured graph exactly once"
        return Because(Reason.NEVER_CALLED, told, missing[0])
    margin = max(load(swap.seam.structure).gates.margin for swap in swaps)
    rule = Rule(question=PastMargin(margin), alpha=alpha_of_attempt(ALPHA, 1), budget_s=seconds)
    arms = {"host": lambda: _run(host), "treated": lambda: _run(treated)}
    series = race(arms, MachineClock(), ProcStat(), Random(0), rule)
    seen, decision = rule.consult(ratios(series.observed()))
    if seen is None:
        return Because(Reason.NOISE, f"{len(series.kept)} usable blocks", "race")
    told = f"{seen.low:.4f} to {seen.high:.4f} against a margin of {margin:g}"
    match decision:
        case Decision.WIN:
            return None
        case Decision.LOSS:
            return Because(Reason.LOSS, told, "race")
        case _:
            return Because(Reason.AMBIGUOUS, told, "race")


def _run(stage: Any) -> None:
    stage.replay()
