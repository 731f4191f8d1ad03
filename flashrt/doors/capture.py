"""``capture``: a whole stage in the deployment's form, its windows declared or found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.capture import Stage


def capture(
    forward: Callable[..., Any],
    windows: Mapping[str, torch.Tensor] | None = None,
    *,
    model: torch.nn.Module | None = None,
    form: tuple[str, ...] = ("compile",),
    name: str = "step",
    check: bool = True,
) -> Stage:
    """Capture ``forward`` whole and replay it over static windows.

    With ``windows``, ``forward(**windows)`` is the step. Without, ``forward()`` makes one call of
    ``model``: every tensor among its arguments becomes a window by itself. Where that call runs a
    tensor-controlled while of a fixed number of steps, what is captured is its canonical schedule
    (init, K times step, readout), proven bit-exact first; a ``segmented`` form captures those
    parts each on its own. ``check`` replays with changed inputs against the eager step, which
    catches an input that is missing from the windows.

    State that the step keeps must be reset by the caller. Raises :class:`Refusal`: FORM for an
    unknown form, a forward that does not make exactly one call of the model, and a segmented form
    of a step without parts; TRAINING for a model that is not in eval mode; UNCAPTURABLE naming
    the blocker; CONSTANT for an output that no window changes.
    """
    from flashrt_runtime.capture import capture as captured
    from flashrt_runtime.form import DIAGNOSIS, known_form
    from flashrt_runtime.window_check import check_windows

    known_form(form, name)
    if model is not None and model.training:
        raise Refusal(Reason.TRAINING, "the model is in training mode", subject=name, do="eval()")
    eager, step = forward, forward
    options: dict[str, str] = {}
    if windows is None:
        eager, step, windows, options = _found(forward, model, name)
    stage = captured(step, windows, form, name=name)
    if check and tuple(form) != DIAGNOSIS:
        seen = check_windows(stage, eager, model)
        options |= {"windows_followed": " ".join(seen.windows)}
        options |= {"windows_unchanged": " ".join(seen.unchanged)} if seen.unchanged else {}
    stage.options |= options
    return stage


def _found(
    forward: Callable[..., Any], model: torch.nn.Module | None, name: str
) -> tuple[Callable[..., Any], Callable[..., Any], Mapping[str, torch.Tensor], dict[str, str]]:
    """The eager call, what is to be captured of it, its windows, and what is recorded of both."""
    from flashrt_runtime.fixed_iteration.entry import record_entry
    from flashrt_runtime.fixed_iteration.normalise import FixedIteration, normalise

    if model is None:
        what = "neither windows= nor model= was given: nothing says what a replay may change"
        raise Refusal(Reason.FORM, what, subject=name, do="capture(forward, model=model)")
    entry = record_entry(forward, model, name)
    found = normalise(entry, model, name)
    told = {"entry": entry.name}
    if not isinstance(found, FixedIteration):
        return entry, entry, entry.windows, {**told, "schedule": f"as written: {found.because}"}
    told |= {
        "schedule": f"init, {found.steps} times step, readout",
        "noise": " ".join(found.noise),
        "observation": " ".join(found.observation),
    }
    return entry, found.schedule, entry.windows, told
