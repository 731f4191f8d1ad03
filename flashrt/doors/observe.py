"""What a door is given to run the host with, in one form: observations and a way to feed them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Observation:
    """One sample. ``id`` orders and names it; ``strata`` says where it comes from."""

    id: str
    value: Any

    @property
    def strata(self) -> tuple[str, ...]:
        """One stratum for all, unless the value says more (a frame does)."""
        return tuple(getattr(self.value, "strata", ("observations",)))


@dataclass(frozen=True)
class Feed:
    """Observations, and ``run(observation)``, which runs the host once and returns its output."""

    observations: tuple[Observation, ...]
    run: Callable[[Observation], Any]


def feed_of(
    forward: Callable[..., Any] | Sequence[Callable[[], Any]],
    observations: Sequence[Any] | None,
) -> Feed:
    """The three ways that a caller may say it.

    ``forward()`` alone is one sample; a sequence of such closures is one sample each;
    ``forward(observation)`` with ``observations`` is one sample each. Raises :class:`Refusal`
    (CONFLICT, EMPTY_CORPUS) for anything else.
    """
    if callable(forward) and observations is None:
        return Feed((Observation("observation-00000", None),), lambda _: forward())
    if callable(forward):
        if not observations:
            raise Refusal(Reason.EMPTY_CORPUS, "there are no observations to calibrate with")
        named = tuple(
            Observation(str(getattr(value, "id", f"observation-{i:05d}")), value)
            for i, value in enumerate(observations)
        )
        return Feed(named, lambda o: forward(o.value))
    closures = tuple(forward) if isinstance(forward, Iterable) else ()
    if observations is not None or not closures or not all(callable(c) for c in closures):
        raise Refusal(
            Reason.CONFLICT,
            "neither a callable, nor a sequence of closures",
            subject="forward",
            do="pass forward(), [forward_0, forward_1], or forward(observation) with observations=",
        )
    named = tuple(Observation(f"observation-{i:05d}", c) for i, c in enumerate(closures))
    return Feed(named, lambda o: o.value())


def tensor_of(out: Any, subject: str) -> torch.Tensor:
    """The tensor to judge in what a host returned: logits of a language model, else the tensor, or
    the first of several; a copy. Raises :class:`Refusal` (FORM) when there is none."""
    import torch

    tensor = getattr(out, "logits", out)
    tensor = tensor[0] if isinstance(tensor, (tuple, list)) and tensor else tensor
    if not isinstance(tensor, torch.Tensor):
        raise Refusal(
            Reason.FORM,
            f"forward returns {type(out).__name__}, which holds no tensor to judge",
            subject=subject,
            do="return a tensor, or an object with .logits",
        )
    return tensor.detach().clone()
