"""``attach``: discovers, gates unit by unit, decides once in the captured form, activates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt.doors.decide import Final, Step, decide
from flashrt.doors.judge import Unit, judge_unit, units_of
from flashrt.doors.observe import Feed, feed_of, tensor_of
from flashrt.doors.swaps import Sampling, SwapPlan, plan_swaps, stated
from flashrt_runtime.reason import Because, Reason

if TYPE_CHECKING:
    import torch

    from flashrt.calibration.precision_spec import ModelPrecisionSpec
    from flashrt.scheme.overrides import Overrides
    from flashrt_runtime.handle import Handle
    from flashrt_runtime.swap import Swap


@dataclass(frozen=True)
class Attached:
    """What was attached and why.

    ``units`` say what each unit's eager gate found: preflight evidence, no more, and none of it is
    a claim about speed. ``final`` is the decision that counts, on everything that is attached, from
    the captured form; ``None`` where nothing was captured. ``decision`` is its reason against, or
    why there was none. ``handle`` is ``None`` when nothing is attached.
    """

    plan: SwapPlan
    units: tuple[Unit, ...]
    decision: Because | None
    handle: Handle | None
    final: Final | None = None

    @property
    def precision_spec(self) -> ModelPrecisionSpec:
        """The plan's: what was built, whether or not it was attached."""
        return self.plan.precision_spec

    def __str__(self) -> str:
        on = 0 if self.handle is None else len(self.handle.units)
        said = [f"{on} units attached of {sum(len(u.swaps) for u in self.units)} swaps tried"]
        said += [f"{self.decision.reason.name}: {self.decision.detail}"] if self.decision else []
        return "; ".join(said)

    def detach(self) -> None:
        """Give the host back. Idempotent."""
        if self.handle is not None:
            self.handle.detach()


def attach(
    model: torch.nn.Module,
    forward: Callable[..., Any] | Sequence[Callable[[], Any]],
    *,
    observations: Sequence[Any] | None = None,
    scheme: str = "auto",
    percentile: float = 99.9,
    max_samples: int | None = None,
    verbose: bool = False,
    overrides: str | Path | Overrides | None = None,
    floors: Mapping[str, float] | None = None,
    on_guard_fail: str = "host",
    step: Callable[..., Any] | None = None,
    windows: Mapping[str, torch.Tensor] | None = None,
    form: Sequence[str] = ("compile",),
    seconds: float = 60.0,
) -> Attached:
    """Attach what passes. Arguments as :func:`flashrt.auto_swaps`, and:

    ``floors`` are hard requirements on parity metrics. ``step(model, **windows)`` with its
    ``windows`` is the deployment's step: both arms are captured whole in ``form``, compared and
    raced in it for at most ``seconds``, and a set that is not decided past the margin is not
    attached. Without a ``step`` nothing can be captured, so nothing is decided: what passes the
    eager gates is attached on the caller's own authority and ``decision`` carries UNCAPTURABLE.

    A unit is a structure, or a kind of negotiated chain: a producer and the readers whose scale it
    emits under are judged as one. A unit is judged alone and then beside those that passed before
    it, so that what is attached was judged as a whole. One that changes the output beyond a stated
    floor, is not finite, falls back or is never called is left to the host with its reason; bands
    warn and refuse nothing, and no unit is left out because of its own speed.
    """
    from flashrt_runtime.swap import attach as attach_swaps

    feed = feed_of(forward, observations)
    sampling = Sampling(percentile, max_samples, verbose, stated(overrides))
    made = plan_swaps(model, feed, scheme, sampling)
    units, kept = gated(model, feed, made.swaps, floors or {})
    if not kept:
        nothing = Because(Reason.STRUCTURE, "no unit passed its gate, or none was found")
        return Attached(made, units, nothing, None)
    if step is None:
        told = "no step to capture was given; the eager gates decide nothing about speed"
        handle = attach_swaps(model, kept, on_guard_fail)
        return Attached(made, units, Because(Reason.UNCAPTURABLE, told), handle)
    asked = Step(step, windows or {}, tuple(form), floors or {}, seconds)
    final = decide(model, kept, asked)
    if not final.passed:
        return Attached(made, units, final.because, None, final)
    return Attached(made, units, None, attach_swaps(model, kept, on_guard_fail), final)


def gated(
    model: torch.nn.Module, feed: Feed, swaps: Sequence[Swap], floors: Mapping[str, float]
) -> tuple[tuple[Unit, ...], list[Swap]]:
    """Every unit's eager gate, and the swaps of those that passed. The model is left as it was."""
    reference = _outputs(feed)
    units: list[Unit] = []
    kept: list[Swap] = []
    for name, group in units_of(swaps):
        unit = _judged(model, feed, reference, (name, group, group), floors)
        if unit.passed and kept:
            beside = _judged(model, feed, reference, (name, group, (*kept, *group)), floors)
            reasons = tuple(
                replace(why, detail=f"beside the units before it: {why.detail}")
                for why in beside.reasons
            )
            unit = replace(unit, together=beside.parity, reasons=reasons)
        units.append(unit)
        if unit.passed:
            kept += group
    return tuple(units), kept


def _judged(
    model: torch.nn.Module,
    feed: Feed,
    reference: Sequence[torch.Tensor],
    unit: tuple[str, tuple[Swap, ...], tuple[Swap, ...]],
    floors: Mapping[str, float],
) -> Unit:
    """A unit (name, its swaps, all that is attached with them) judged on every observation."""
    from flashrt_runtime.swap import attach as attach_swaps

    name, swaps, attached = unit
    handle = attach_swaps(model, attached)
    try:
        pairs = list(zip(reference, _outputs(feed), strict=True))
        return judge_unit(name, swaps, handle, pairs, floors)
    finally:
        handle.detach()


def _outputs(feed: Feed) -> list[torch.Tensor]:
    """The output tensor of every observation."""
    import torch

    with torch.no_grad():
        return [tensor_of(feed.run(one), one.id) for one in feed.observations]
