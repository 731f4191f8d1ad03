"""``attach``: discovers, gates unit by unit, decides once in the captured form, activates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt.doors.judge import Unit, judge_unit, units_of
from flashrt.doors.observe import Feed, feed_of
from flashrt.doors.swaps import Sampling, SwapPlan, plan_swaps
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt.calibration.precision_spec import ModelPrecisionSpec
    from flashrt_runtime.handle import Handle


@dataclass(frozen=True)
class Attached:
    """What was attached and why.

    ``units`` say what each structure's eager gate found: preflight evidence, no more. ``decision``
    is the one that counts, from the captured form; its reason says so when there was none.
    ``handle`` is ``None`` when nothing is attached.
    """

    plan: SwapPlan
    units: tuple[Unit, ...]
    decision: Because | None
    handle: Handle | None

    @property
    def precision_spec(self) -> ModelPrecisionSpec:
        """The plan's: what was built, whether or not it was attached."""
        return self.plan.precision_spec

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
    floors: Mapping[str, float] | None = None,
    on_guard_fail: str = "host",
    step: Callable[..., Any] | None = None,
    windows: Mapping[str, torch.Tensor] | None = None,
    seconds: float = 60.0,
) -> Attached:
    """Attach what passes. Arguments as :func:`flashrt.auto_swaps`, and:

    ``floors`` are hard requirements on parity metrics. ``step(model, **windows)`` with its
    ``windows`` is the deployment's step: both arms are captured and raced in it for at most
    ``seconds``, and a set that is not decided past the margin is not attached. Without a ``step``
    nothing can be captured, so nothing is decided: what passes the eager gates is attached on the
    caller's own authority and ``decision`` carries UNCAPTURABLE.

    A unit is a structure. One that changes the output beyond a stated floor, is not finite, falls
    back or is never called is left to the host with its reason; bands warn and refuse nothing.
    """
    from flashrt_runtime.swap import attach as attach_swaps

    feed = feed_of(forward, observations)
    sampling = Sampling(percentile, max_samples, verbose)
    made = plan_swaps(model, feed, scheme, sampling)
    reference = _outputs(feed)
    units = []
    for name, swaps in units_of(made.swaps):
        handle = attach_swaps(model, swaps)
        try:
            pairs = list(zip(reference, _outputs(feed), strict=True))
            units.append(judge_unit(name, swaps, handle, pairs, floors or {}))
        finally:
            handle.detach()
    kept = [swap for unit in units if unit.passed for swap in unit.swaps]
    if not kept:
        nothing = Because(Reason.STRUCTURE, "no unit passed its gate, or none was found")
        return Attached(made, tuple(units), nothing, None)
    if step is None:
        told = "no step to capture was given; the eager gates decide nothing about speed"
        handle = attach_swaps(model, kept, on_guard_fail)
        return Attached(made, tuple(units), Because(Reason.UNCAPTURABLE, told), handle)
    from flashrt.doors.decide import decide

    decision = decide(model, kept, step, dict(windows or {}), seconds)
    if decision is not None:
        return Attached(made, tuple(units), decision, None)
    return Attached(made, tuple(units), None, attach_swaps(model, kept, on_guard_fail))


def _outputs(feed: Feed) -> list[torch.Tensor]:
    """The output tensor of every observation: logits of a language model, else the tensor."""
    import torch

    found = []
    with torch.no_grad():
        for observation in feed.observations:
            out = feed.run(observation)
            tensor = getattr(out, "logits", out)
            tensor = tensor[0] if isinstance(tensor, (tuple, list)) else tensor
            if not isinstance(tensor, torch.Tensor):
                raise Refusal(
                    Reason.FORM,
                    f"forward returns {type(out).__name__}, which holds no tensor to judge",
                    subject=observation.id,
                    do="return a tensor, or an object with .logits",
                )
            found.append(tensor.detach().clone())
    return found
