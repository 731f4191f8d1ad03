"""Whether a captured step follows everything that the step reads: replays with changed inputs,
against the step itself run eagerly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flashrt_runtime.fixed_iteration.record import held_by
from flashrt_runtime.fixed_iteration.values import agreeing, changed, identical
from flashrt_runtime.inputs_read import Holder, holders, modules_of, reading
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.capture import Stage

# A replay follows a change when it lies this much nearer to the changed output than the change is
# wide; a capture may round otherwise than eager does, so equality is not asked of it.
NEAR = 0.25


@dataclass(frozen=True)
class WindowCheck:
    """What was changed and followed (``windows``, and ``held`` tensors that the step reads besides
    them), and what no other value was known for (``unchanged``)."""

    windows: tuple[str, ...]
    held: tuple[str, ...]
    unchanged: tuple[str, ...]


@dataclass
class _Run:
    """Both arms of the check. ``state`` is what the step writes besides its outputs, with what it
    held before: put back before every run. ``rounding`` is how far the two are apart unchanged;
    ``moved`` whether any change has changed an eager output."""

    stage: Stage
    step: Callable[..., Any]
    base: Mapping[str, torch.Tensor]
    state: list[tuple[torch.Tensor, torch.Tensor]]
    first: list[torch.Tensor] = field(default_factory=list)
    rounding: list[float] = field(default_factory=list)
    moved: bool = False

    def restore(self) -> None:
        """The state as it was when the check began."""
        for whole, was in self.state:
            whole.copy_(was)

    def eager(self, case: Mapping[str, Any]) -> list[torch.Tensor]:
        """The step's own outputs."""
        self.restore()
        return _tensors(self.step(**{key: value.clone() for key, value in case.items()}))

    def replayed(self, case: Mapping[str, Any]) -> list[torch.Tensor]:
        """The stage's outputs."""
        self.restore()
        return _tensors(self.stage.replay(**case))


def _tensors(outputs: Any) -> list[torch.Tensor]:
    import torch
    from torch.utils._pytree import tree_leaves

    return [x.detach().clone() for x in tree_leaves(outputs) if isinstance(x, torch.Tensor)]


def _distance(left: list[torch.Tensor], right: list[torch.Tensor]) -> list[float]:
    """Largest absolute difference per output; infinite where the forms or the NaNs differ."""
    found = []
    for one, two in zip(left, right, strict=True):
        if one.shape != two.shape or one.dtype != two.dtype:
            found.append(float("inf"))
        elif one.numel() == 0:
            found.append(0.0)
        else:
            a, b = one.double(), two.double()
            wide = (a - b).abs().masked_fill(agreeing(a, b), 0.0).nan_to_num(nan=float("inf")).max()
            found.append(float(wide))
    return found


def _follows(run: _Run, case: Mapping[str, Any]) -> bool | None:
    """Whether the replay follows the change; ``None`` when the step itself refuses it."""
    try:
        expected = run.eager(case)
    except (RuntimeError, ValueError, IndexError):
        return None
    got = run.replayed(case)
    if not len(expected) == len(got) == len(run.first):
        return False
    moved, left = _distance(expected, run.first), _distance(got, expected)
    run.moved = run.moved or any(move > 0 for move in moved)
    return all(
        rest <= max(NEAR * move, 4 * rounding)
        for move, rest, rounding in zip(moved, left, run.rounding, strict=True)
    )


@contextmanager
def _put(holder: Holder, value: torch.Tensor) -> Iterator[None]:
    """Another tensor in the holder's place; without a place, other values in the same tensor."""
    was = holder.tensor.detach().clone()
    holder.put(value)
    try:
        yield
    finally:
        holder.put(holder.tensor)
        holder.tensor.copy_(was)


def _nameless(tensor: torch.Tensor) -> Holder:
    def put(value: torch.Tensor) -> None:
        if value is not tensor:
            tensor.copy_(value)

    return Holder(f"a {tensor.dtype} {list(tensor.shape)} tensor", tensor, put)


def _missing(
    step: Callable[..., Any], found: Mapping[int, torch.Tensor], model: Any
) -> list[Holder]:
    """Holders of what the step reads that is neither a window nor the host's."""
    owned: set[int] = set()
    for module in [model] if model is not None else modules_of(step):
        owned |= held_by(module)
    named = {one.tensor.untyped_storage().data_ptr(): one for one in holders(step)}
    return [named.get(key, _nameless(one)) for key, one in found.items() if key not in owned]


def check_windows(stage: Stage, step: Callable[..., Any], model: Any = None) -> WindowCheck:
    """Replay ``stage`` with each window changed, and with everything changed that ``step`` reads
    besides its windows and the host's own tensors; compare with ``step`` run eagerly.

    ``step`` is what was captured; ``model`` owns weights and state (default: the modules that the
    step holds). State and windows are left as they were, and no replay is counted. Raises
    :class:`Refusal` (UNCAPTURABLE): a step that draws its own noise, a window that the replay does
    not follow, and an input that is missing from the windows, each named; (CONSTANT): a step whose
    output is the same whichever window is changed, so that a replay has nothing to follow.
    """
    import torch

    base = {key: value.clone() for key, value in stage.windows.items()}
    replays = stage.replays
    with torch.inference_mode(False), torch.no_grad():
        copies = {key: value.clone() for key, value in base.items()}
        context = reading(copies.values())
        with context:
            step(**copies)
        run = _Run(stage, step, base, list(context.written.values()))
        free = {k: one for k, one in context.found.items() if k not in context.written}
        try:
            return _checked(run, _missing(step, free, model))
        finally:
            run.restore()
            for key, value in base.items():
                stage.windows[key].copy_(value)
            stage.replays = replays


def _checked(run: _Run, missing: list[Holder]) -> WindowCheck:
    run.first = run.eager(run.base)
    name = run.stage.name
    if not identical(run.first, run.eager(run.base)):
        what = "two eager runs differ: the step draws its own noise"
        raise Refusal(Reason.UNCAPTURABLE, what, subject=name, do="give the noise as a window")
    got = run.replayed(run.base)
    if len(got) != len(run.first):
        what = f"a replay returns {len(got)} tensors, the eager step {len(run.first)}"
        raise Refusal(Reason.UNCAPTURABLE, what, subject=name)
    run.rounding = _distance(got, run.first)
    followed, unchanged = _windows_followed(run)
    if followed and not run.moved:
        what = f"the output is the same whatever is in {', '.join(followed)}"
        do = "return what the step computes from its windows"
        raise Refusal(Reason.CONSTANT, what, subject=name, do=do)
    return WindowCheck(tuple(followed), tuple(_held_followed(run, missing)), tuple(unchanged))


def _windows_followed(run: _Run) -> tuple[list[str], list[str]]:
    followed, unchanged = [], []
    for key, value in run.base.items():
        other = changed(value)
        found = _follows(run, {**run.base, key: other}) if other is not None else None
        if found is None:
            unchanged.append(key)
        elif found:
            followed.append(key)
        else:
            what = f"a replay does not follow the window {key!r} as the eager step does"
            raise Refusal(Reason.UNCAPTURABLE, what, subject=run.stage.name)
    return followed, unchanged


def _held_followed(run: _Run, missing: list[Holder]) -> list[str]:
    followed = []
    for holder in missing:
        other = changed(holder.tensor)
        if other is None:
            continue
        told = f"the step reads {holder.name}, which is no window, and a replay does not follow it"
        do = "declare it in windows= and take it as an argument"
        with _put(holder, other):
            try:
                found = _follows(run, run.base)
            except Refusal as refusal:
                what = f"{told}: {refusal.what}"
                raise Refusal(Reason.UNCAPTURABLE, what, subject=run.stage.name, do=do) from refusal
        if found is False:
            raise Refusal(Reason.UNCAPTURABLE, told, subject=run.stage.name, do=do)
        followed.append(holder.name)
    return followed
