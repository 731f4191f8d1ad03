"""Puts a stand-in in the place of what a module's forward calls, for the length of a block.

Hosts keep replaceable functions as attributes of the module or as names of its file.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Called instead of the callee, with the callee and its arguments; returns what the callee would.
Around = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class _StandIn:
    """Looks like what it stands in for: its class, attributes and signature are the callee's.

    A host may ask ``isinstance`` and may read the signature of ``__call__`` to decide which
    arguments it passes (diffusers does).
    """

    def __init__(self, inner: Any, around: Around) -> None:
        @functools.wraps(inner.__call__)
        def call(*args: Any, **kwargs: Any) -> Any:
            return around(inner, args, kwargs)

        self.__dict__.update({"_inner": inner, "__call__": call})
        functools.update_wrapper(self, inner, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["__call__"](*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_inner"], name)

    @property
    def __class__(self) -> type[Any]:  # ``isinstance`` asks for it before it asks the type
        return type(self.__dict__["_inner"])

    @__class__.setter
    def __class__(self, _: type[object], /) -> None:
        raise TypeError("a stand-in has its callee's class")


def callee_of(module: torch.nn.Module, slot: str) -> Any:
    """The module's attribute, else what its forward finds by this name; None for neither."""
    held = getattr(module, slot, None)
    return _scope(module).get(slot) if held is None else held


def _scope(module: torch.nn.Module) -> dict[str, Any]:
    """The names of the file in which the module's forward was written."""
    from flashrt_runtime.adapters.slots import forward_of

    scope: dict[str, Any] = getattr(inspect.unwrap(forward_of(module)), "__globals__", {})
    return scope


@contextmanager
def replaced(module: torch.nn.Module, slot: str, around: Around) -> Iterator[None]:
    """What the module calls as ``slot`` runs ``around(callee, args, kwargs)``; then it is put back.

    A function of the module's file serves every module written there: only the calls made while
    this module runs go through ``around``.
    """
    if getattr(module, slot, None) is None:
        with _named(module, slot, around):
            yield
        return
    own = slot in module.__dict__
    before = getattr(module, slot)
    object.__setattr__(module, slot, _StandIn(before, around))
    try:
        yield
    finally:
        if own:
            object.__setattr__(module, slot, before)
        else:
            object.__delattr__(module, slot)


@contextmanager
def _named(module: torch.nn.Module, slot: str, around: Around) -> Iterator[None]:
    scope = _scope(module)
    before = scope[slot]
    running: list[None] = []

    @functools.wraps(before)
    def call(*args: Any, **kwargs: Any) -> Any:
        return around(before, args, kwargs) if running else before(*args, **kwargs)

    enter = module.register_forward_pre_hook(lambda *_: running.append(None))
    leave = module.register_forward_hook(lambda *_: running.clear(), always_call=True)
    scope[slot] = call
    try:
        yield
    finally:
        scope[slot] = before
        enter.remove()
        leave.remove()
