"""A step in parts: named tensors in, named tensors out, some part repeated a fixed number of times.

Called, it runs whole (and can be captured whole); in a ``segmented`` form each part is captured on
its own. A fixed-iteration host is three of them: init, K times step, readout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Segment:
    """One part. ``run`` takes the tensors named ``reads``, in order, and returns a tuple of those
    named ``writes``. ``starts`` names tensors that begin, before the first of ``repeat`` runs, as
    another: what a repeated part carries from run to run."""

    name: str
    run: Callable[..., tuple[torch.Tensor, ...]]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    repeat: int = 1
    starts: Mapping[str, str] = field(default_factory=dict)


class Segments:
    """Parts in order. ``finish`` makes the step's output of the tensors named ``outputs``."""

    def __init__(
        self,
        parts: tuple[Segment, ...],
        outputs: tuple[str, ...],
        finish: Callable[[list[torch.Tensor]], Any],
    ) -> None:
        self.parts = parts
        self.outputs = outputs
        self.finish = finish

    def check(self, windows: Mapping[str, Any], name: str) -> None:
        """Raises :class:`Refusal` (BINDING) for a tensor that is read before it is there."""
        there = set(windows)
        for part in self.parts:
            missing = [s for s in part.starts.values() if s not in there]
            there |= set(part.starts)
            missing += [read for read in part.reads if read not in there]
            if missing:
                what = f"the part {part.name!r} reads {missing[0]!r}, which nothing gave"
                raise Refusal(Reason.BINDING, what, subject=name)
            if part.repeat < 1:
                raise Refusal(Reason.BINDING, f"{part.name!r} repeats {part.repeat}", subject=name)
            there |= set(part.writes)
        missing = [given for given in self.outputs if given not in there]
        if missing:
            what = f"the output {missing[0]!r} is written by no part"
            raise Refusal(Reason.BINDING, what, subject=name)

    def __call__(self, **windows: Any) -> Any:
        """The whole step."""
        return self.through([part.run for part in self.parts], windows)

    def through(self, runs: list[Callable[..., Any]], windows: Mapping[str, Any]) -> Any:
        """The whole step with ``runs`` in the place of the parts' own."""
        state = dict(windows)
        for part, run in zip(self.parts, runs, strict=True):
            for carried, start in part.starts.items():
                state[carried] = state[start]
            for _ in range(part.repeat):
                written = run(*[state[read] for read in part.reads])
                for write, value in zip(part.writes, written, strict=True):
                    state[write] = value
        return self.finish([state[given] for given in self.outputs])
