"""The one call of a host that a forward makes: recorded with its arguments, callable with others.

Every tensor among the arguments is a window, named by its parameter and its place in it
(``noise``, ``images_0``). Nothing of the host is rewritten: while one forward runs, its public
methods are wrapped on the instance, and the wrappers are taken off again.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class _Slot:
    """Where a window's tensor stands in an argument's value."""

    window: str


@dataclass(frozen=True)
class Entry:
    """The method ``name`` of the host with its arguments' plan; ``windows`` by name."""

    name: str
    method: Callable[..., Any]
    arguments: Mapping[str, Any]
    windows: Mapping[str, torch.Tensor]

    def __call__(self, **windows: Any) -> Any:
        """Call the method with these tensors in the windows' places, the rest as recorded."""
        return self.method(**{key: _filled(v, windows) for key, v in self.arguments.items()})


def _filled(value: Any, windows: Mapping[str, Any]) -> Any:
    if isinstance(value, _Slot):
        return windows[value.window]
    if type(value) is dict:
        return {key: _filled(one, windows) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)([_filled(one, windows) for one in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [one.name for one in dataclasses.fields(value) if one.init]
        return type(value)(**{key: _filled(getattr(value, key), windows) for key in names})
    return value


def _planned(value: Any, name: str, windows: dict[str, Any]) -> Any:
    """``value`` with slots in the places of its tensors, which go to ``windows``."""
    import torch

    if isinstance(value, torch.Tensor):
        window = name
        while window in windows:
            window += "_"
        windows[window] = value
        return _Slot(window)
    if type(value) is dict:
        return {key: _planned(one, f"{name}_{key}", windows) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(
            [_planned(one, f"{name}_{index}", windows) for index, one in enumerate(value)]
        )
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [one.name for one in dataclasses.fields(value) if one.init]
        fields = {key: _planned(getattr(value, key), f"{name}_{key}", windows) for key in names}
        return type(value)(**fields)
    return value


@dataclass
class _Calls:
    """What the wrappers saw: the outermost calls, and how deep the present one is."""

    found: list[tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]]
    depth: int = 0


def _wrapper(name: str, method: Callable[..., Any], calls: _Calls) -> Callable[..., Any]:
    def wrapped(*args: Any, **named: Any) -> Any:
        if calls.depth == 0:
            calls.found.append((name, method, args, named))
        calls.depth += 1
        try:
            return method(*args, **named)
        finally:
            calls.depth -= 1

    return wrapped


def _methods(model: torch.nn.Module) -> list[str]:
    """The host's own methods: public ones of its classes below ``nn.Module``, and ``forward``."""
    from torch import nn

    inherited = set(dir(nn.Module)) - {"forward"}
    found: dict[str, None] = {}
    for kind in type(model).__mro__:
        for name, value in vars(kind).items():
            own = not name.startswith("_") and name not in inherited
            if own and inspect.isfunction(value) and name not in vars(model):
                found[name] = None
    return list(found)


@contextmanager
def _watched(model: torch.nn.Module, calls: _Calls) -> Iterator[None]:
    names = _methods(model)
    for name in names:
        model.__dict__[name] = _wrapper(name, getattr(model, name), calls)
    try:
        yield
    finally:
        for name in names:
            del model.__dict__[name]


def record_entry(forward: Callable[[], Any], model: torch.nn.Module, name: str) -> Entry:
    """Run ``forward()`` once and return the one call of the host that it makes.

    Raises :class:`Refusal` (FORM): no call or several, an argument that no parameter names, a
    tensor given twice, no tensor at all.
    """
    import torch

    calls = _Calls([])
    with torch.no_grad(), _watched(model, calls):
        forward()
    if len(calls.found) != 1:
        seen = ", ".join(call[0] for call in calls.found[:4]) or "none"
        what = f"the forward calls the host {len(calls.found)} times ({seen}), not once"
        raise Refusal(Reason.FORM, what, subject=name, do="capture one call, or give windows=")
    entry, method, args, named = calls.found[0]
    signature = inspect.signature(method)
    bound = signature.bind(*args, **named)
    arguments: dict[str, Any] = {}
    for key, value in bound.arguments.items():
        kind = signature.parameters[key].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            arguments |= value
        elif kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            what = f"{entry} takes {key!r} by position only: a window needs a name"
            raise Refusal(Reason.FORM, what, subject=name)
        else:
            arguments[key] = value
    windows: dict[str, torch.Tensor] = {}
    planned = {key: _planned(value, key, windows) for key, value in arguments.items()}
    if not windows:
        what = f"{entry} was given no tensor: there is nothing to replay with"
        raise Refusal(Reason.FORM, what, subject=name)
    return Entry(entry, method, planned, windows)
