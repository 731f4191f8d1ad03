"""Callables that a module's forward calls by name: its own attributes, or functions of its file.

Frameworks keep replaceable kernels in either place, and releases move them. A slot is known by
the parameters of the callable, never by the names of the host's classes.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

ATTRIBUTE = "attribute"
GLOBAL = "global"


@dataclass(frozen=True)
class Slot:
    """``name`` is what forward calls; ``place`` is ``attribute`` (of the module) or ``global``."""

    name: str
    place: str
    function: Callable[..., Any]
    parameters: tuple[str, ...]


class View:
    """A module seen with some attributes replaced; everything else is the module's own."""

    def __init__(self, host: torch.nn.Module, replaced: Mapping[str, Any]) -> None:
        self.__dict__.update(replaced)
        self.__dict__["_host"] = host

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_host"], name)


def forward_of(module: torch.nn.Module) -> Any:
    """The function that a call of the module runs, without the module bound to it."""
    own = module.__dict__.get("forward")
    return getattr(own, "__func__", own) if own is not None else type(module).forward


def plain_forward(module: torch.nn.Module) -> Any:
    """The same, out of what decorates or listens to it; a function where it is a Python one."""
    plain = inspect.unwrap(forward_of(module))
    return getattr(plain, "__func__", plain)


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def slots_of(module: torch.nn.Module) -> Iterator[Slot]:
    """Every callable slot: attributes that are no modules, then functions of the module's file."""
    yield from attribute_slots(module)
    yield from global_slots(plain_forward(module))


def attribute_slots(module: torch.nn.Module) -> list[Slot]:
    """The module's own attributes that are callable and no modules."""
    held = module.__dict__
    if not any(map(callable, held.values())):
        return []
    from torch import nn

    # torch's own attributes begin with an underscore: hooks, parameters, children
    return [
        Slot(name, ATTRIBUTE, value, _parameters(value))
        for name, value in held.items()
        if name[0] != "_" and name != "forward" and callable(value)
        if not isinstance(value, (nn.Module, type))
    ]


def global_slots(plain: Any) -> list[Slot]:
    """The functions of its file that a forward calls by name, ``plain`` from what decorates it."""
    if not isinstance(plain, types.FunctionType):
        return []
    named = [(name, plain.__globals__.get(name)) for name in plain.__code__.co_names]
    return [
        Slot(name, GLOBAL, value, _parameters(value))
        for name, value in named
        if isinstance(value, types.FunctionType)
    ]


def rehost(
    module: torch.nn.Module,
    functions: Mapping[str, Callable[..., Any]],
    attributes: Mapping[str, Any],
) -> Callable[..., Any]:
    """The module's own forward with other ``functions`` of its file and other ``attributes``.

    Returns a callable of forward's arguments. The module, its class and its file are unchanged.
    Raises :class:`Refusal` (LAYOUT) when forward is no Python function or hides what it wraps.
    """
    function = forward_of(module)
    if functions:
        function = _rebuilt(function, functions, type(module).__name__)
    target: Any = View(module, attributes) if attributes else module

    def run(*args: Any, **named: Any) -> Any:
        return function(target, *args, **named)

    return run


def _rebuilt(function: Any, functions: Mapping[str, Callable[..., Any]], subject: str) -> Any:
    """The function, under the decorators it has, with other globals."""
    if not isinstance(function, types.FunctionType):
        raise Refusal(Reason.LAYOUT, "its forward is not a Python function", subject=subject)
    wrapped = getattr(function, "__wrapped__", None)
    scope, closure = function.__globals__, function.__closure__
    if wrapped is None:
        scope = {**scope, **functions}
    else:
        inner = _rebuilt(wrapped, functions, subject)
        held = [cell.cell_contents is wrapped for cell in closure or ()]
        if not any(held):
            what = "a decorator of its forward does not hold what it wraps"
            raise Refusal(Reason.LAYOUT, what, subject=subject)
        closure = tuple(
            types.CellType(inner) if is_it else cell
            for is_it, cell in zip(held, closure or (), strict=True)
        )
    again = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, closure
    )
    again.__kwdefaults__ = function.__kwdefaults__
    return again
