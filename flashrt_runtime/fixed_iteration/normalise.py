"""A tensor-controlled while in a host becomes init, K times step, readout: bit-exact or refused.

One real call is recorded. Where the host's Python asks a tensor whether to go on, and that tensor
depends on no input, the answers are the schedule: what ran before the first, between two, and
after the last. A loop that asks about its input stays the host's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt_runtime.fixed_iteration.cut import cut
from flashrt_runtime.fixed_iteration.record import DependsOnData, record
from flashrt_runtime.fixed_iteration.values import changed, identical
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.fixed_iteration.entry import Entry
    from flashrt_runtime.segments import Segments


@dataclass(frozen=True)
class FixedIteration:
    """A host's schedule. ``noise`` are the windows that the refined value starts from, and
    ``observation`` the others; ``steps`` is K."""

    schedule: Segments
    steps: int
    noise: tuple[str, ...]
    observation: tuple[str, ...]


@dataclass(frozen=True)
class Untouched:
    """Why a call is captured as the host wrote it."""

    because: str


def normalise(
    entry: Entry, model: torch.nn.Module, name: str = "step"
) -> FixedIteration | Untouched:
    """The canonical schedule of a recorded call, proven against the call itself.

    :class:`Untouched` for a call without a tensor-controlled while, and for one whose Python asks
    about a value that depends on its input. Raises :class:`Refusal` (UNCAPTURABLE) for a fixed
    loop that cannot be normalised: noise that is not given, steps that differ, an input that is
    no argument, a schedule that is not bit-exact.
    """
    try:
        made = record(entry, entry.windows, model, name)
    except DependsOnData as error:
        return Untouched(f"{entry.name} decides by values of its input: {error}")
    if made is None:
        return Untouched(f"{entry.name} runs no tensor-controlled while")
    schedule, noise = cut(made, name)
    _prove(entry, schedule, name)
    if not noise:
        what = f"the {made.steps} steps of {entry.name} start from no window"
        raise Refusal(Reason.UNCAPTURABLE, what, subject=name, do="give the noise explicitly")
    others = tuple(key for key in entry.windows if key not in noise)
    return FixedIteration(schedule, made.steps, noise, others)


def _prove(entry: Entry, schedule: Segments, name: str) -> None:
    """Both schedules, on what was recorded and with every window changed in its turn."""
    import torch

    given = {key: value.detach().clone() for key, value in entry.windows.items()}
    cases: list[tuple[str, Mapping[str, Any]]] = [("what was recorded", given)]
    for key, value in given.items():
        other = changed(value)
        if other is not None:
            cases.append((f"a changed {key}", {**given, key: other}))
    with torch.inference_mode(False), torch.no_grad():
        for told, case in cases:
            try:
                expected = entry(**_copies(case))
            except (RuntimeError, ValueError, IndexError):
                continue  # values that the host itself refuses prove nothing
            if not identical(schedule(**_copies(case)), expected):
                what = f"init, K times step, readout is not bit-exact on {told}"
                raise Refusal(Reason.UNCAPTURABLE, what, subject=name)


def _copies(case: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value.clone() for key, value in case.items()}
