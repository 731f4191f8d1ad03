"""Functions that stand in for a host's own while one forward of it is observed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_INSTEAD = "flashrt_instead"


def mark(function: Any, instead: Any) -> None:
    """Say of a function of ours what it stands in for; ``None`` for what only a class has."""
    function.__dict__[_INSTEAD] = instead


def listen(module: torch.nn.Module, forward: Any) -> Callable[[], None]:
    """Put ``forward``, a function, before the module's own; returns what takes it back."""
    held = module.__dict__
    own = held.get("forward")
    mark(forward, own)
    forward.__dict__["__wrapped__"] = module.forward  # its signature is still the host's
    held["forward"] = forward
    if own is None:
        return partial(held.__delitem__, "forward")
    return partial(held.__setitem__, "forward", own)


def unlistened(value: Any) -> Any:
    """What a module holds there itself, whoever listens."""
    while type(value) is FunctionType and _INSTEAD in value.__dict__:
        value = value.__dict__[_INSTEAD]
    return value


def own_forward(module: torch.nn.Module) -> Any:
    """The forward that the module itself holds; ``None`` where it is its class's."""
    return unlistened(module.__dict__.get("forward"))
