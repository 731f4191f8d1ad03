"""The one decision that counts: both arms captured in the deployment's form, and raced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from flashrt.doors.judge import judge_outputs
from flashrt.doors.observe import tensor_of
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.swap import Swap


@dataclass(frozen=True)
class Final:
    """The end-to-end decision on one set of seams, both arms captured in ``form``.

    ``parity`` compares what the two captured arms return for the windows, ``speedup`` is the
    interval that the race decided by (``None`` where it was not reached), and ``because`` why the
    set is not attached. ``evidence`` tells it from the units' eager preflight.
    """

    form: tuple[str, ...]
    seams: tuple[str, ...]
    parity: Mapping[str, Any]
    speedup: tuple[float, float] | None
    because: Because | None

    evidence: ClassVar[str] = "decision (captured)"

    @property
    def passed(self) -> bool:
        """Whether the whole set may be attached."""
        return self.because is None


@dataclass(frozen=True)
class Step:
    """The deployment's step ``run(model, **windows)``, and how it is captured and judged.

    ``floors`` are hard requirements on parity metrics, ``seconds`` the longest race.
    """

    run: Callable[..., Any]
    windows: Mapping[str, torch.Tensor]
    form: tuple[str, ...] = ("compile",)
    floors: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 60.0


def decide(model: torch.nn.Module, swaps: Sequence[Swap], step: Step) -> Final:
    """Capture both arms whole, compare them, race them, compare again: one decision on the set.

    The arms are two copies of the module tree over one set of weights; ``model`` is not touched.
    Everything that would be attached is in the treated arm, and nothing is left out afterwards.
    """
    from flashrt.qualify.arm import share_weights
    from flashrt_runtime.swap import attach

    seams = tuple(swap.seam.id for swap in swaps)
    if step.form == ("eager",):
        told = "an eager step is for diagnosis and decides nothing"
        return Final(step.form, seams, {}, None, Because(Reason.UNCAPTURABLE, told))
    host_arm, treated_arm = share_weights(model), share_weights(model)
    handle = attach(treated_arm, swaps)
    try:
        return _decided(Arms(host_arm, treated_arm), swaps, step, seams)
    finally:
        handle.detach()


@dataclass(frozen=True)
class Arms:
    """Two module trees over one set of weights: the host, and the one with the swaps attached."""

    host: torch.nn.Module
    treated: torch.nn.Module


def _decided(arms: Arms, swaps: Sequence[Swap], step: Step, seams: tuple[str, ...]) -> Final:
    from flashrt_runtime.capture import capture

    parity: Mapping[str, Any] = {}
    speedup: tuple[float, float] | None = None

    def final(because: Because | None) -> Final:
        return Final(step.form, seams, parity, speedup, because)

    windows, form = dict(step.windows), step.form
    try:
        host = capture(lambda **given: step.run(arms.host, **given), windows, form, name="host")
        treated = capture(
            lambda **given: step.run(arms.treated, **given), windows, form, name="treated"
        )
    except Refusal as refusal:
        return final(refusal.because())
    missing = [seam for seam in seams if treated.operators.get(seam) != 1]
    if missing:
        told = "its operator is not in the captured graph exactly once"
        return final(Because(Reason.NEVER_CALLED, told, missing[0]))
    first, again = _output(host, windows), _output(host, windows)
    if not _same(first, again):
        told = "the captured host gives another output for the same windows"
        return final(Because(Reason.EMPTY_CONTROL, told, "host"))
    parity, reasons = _compared(first, _output(treated, windows), step.floors)
    if reasons:
        return final(reasons[0])
    speedup, lost = _raced(host, treated, swaps, step.seconds)
    if lost is not None:
        return final(lost)
    after, reasons = _compared(_output(host, windows), _output(treated, windows), step.floors)
    if not reasons and after != parity:
        told = "the arms gave other answers after the race than before, for the same windows"
        reasons = [Because(Reason.INTEGRITY, told, "race")]
    return final(reasons[0] if reasons else None)


def _output(stage: Any, windows: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return tensor_of(stage.replay(**windows), stage.name)


def _same(first: torch.Tensor, again: torch.Tensor) -> bool:
    import torch

    same_kind = first.shape == again.shape and first.dtype == again.dtype
    return same_kind and torch.equal(first.nan_to_num(), again.nan_to_num())


def _compared(
    host: torch.Tensor, treated: torch.Tensor, floors: Mapping[str, float]
) -> tuple[dict[str, Any], list[Because]]:
    parity, reasons = judge_outputs([(host, treated)], floors, "step")
    return {**parity, "label": "captured step"}, reasons


def _raced(
    host: Any, treated: Any, swaps: Sequence[Swap], seconds: float
) -> tuple[tuple[float, float] | None, Because | None]:
    """The interval of the speed-up, and ``None`` or the reason it is no win past the margin."""
    from flashrt.gate.thresholds import ALPHA
    from flashrt.race.clock import MachineClock
    from flashrt.race.decision import Decision, PastMargin, alpha_of_attempt
    from flashrt.race.load import ProcStat
    from flashrt.race.measure import race
    from flashrt.race.rule import Rule
    from flashrt.race.series import ratios
    from flashrt.spec import load

    margin = max(load(swap.seam.structure).gates.margin for swap in swaps)
    rule = Rule(question=PastMargin(margin), alpha=alpha_of_attempt(ALPHA, 1), budget_s=seconds)
    arms = {"host": lambda: _run(host), "treated": lambda: _run(treated)}
    series = race(arms, MachineClock(), ProcStat(), Random(0), rule)
    seen, decision = rule.consult(ratios(series.observed()))
    if seen is None:
        quiet = f"{len(series.kept)} of {len(series.blocks)} blocks"
        what = f"other processes left {quiet} undisturbed in {seconds:g} s, too few to decide"
        return None, Because(Reason.NOISE, what, "race")
    told = f"{seen.low:.4f} to {seen.high:.4f} against a margin of {margin:g}"
    match decision:
        case Decision.WIN:
            because = None
        case Decision.LOSS:
            because = Because(Reason.LOSS, told, "race")
        case _:
            because = Because(Reason.AMBIGUOUS, told, "race")
    return (seen.low, seen.high), because


def _run(stage: Any) -> None:
    stage.replay()
