"""One real forward, observed: which module was called when, with which tensor, what came out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Forward = Callable[[], object]


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


@dataclass(frozen=True)
class Observed:
    """A tensor as it was when it was seen. ``version`` counts in-place writes to it."""

    tensor: torch.Tensor
    version: int

    @classmethod
    def now(cls, tensor: torch.Tensor) -> Observed:
        """The tensor as it is at this moment."""
        return cls(tensor, _version(tensor))

    def same(self, other: Observed) -> bool:
        """Whether both are one tensor object with nothing written to it in between."""
        return self.tensor is other.tensor and self.version == other.version

    def intact(self) -> bool:
        """Whether nothing was written to it since it was seen."""
        return _version(self.tensor) == self.version


@dataclass(frozen=True)
class Call:
    """One call of one module. ``order`` counts calls by when they began.

    ``plain`` is whether the call had one positional tensor and nothing else.
    """

    module: str
    order: int
    input: Observed | None
    output: Observed | None
    plain: bool


@dataclass
class Trace:
    """Every observed call of one forward, and the order in which modules were called."""

    calls: dict[str, list[Call]] = field(default_factory=dict)
    sequence: list[str] = field(default_factory=list)


def _first_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    import torch

    return next((v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)), None)


def trace(model: torch.nn.Module, forward: Forward, paths: set[str]) -> Trace:
    """Run ``forward`` once with hooks on the modules at ``paths``; the hooks are gone afterwards.

    Inputs and outputs are kept by reference, so run it on a short frame.
    """
    import torch

    seen = Trace()
    open_calls: list[tuple[int, Observed | None, bool]] = []

    def enter(_module: torch.nn.Module, args: Any, kwargs: Any, *, path: str) -> None:
        tensor = _first_tensor(args, kwargs)
        plain = len(args) == 1 and isinstance(args[0], torch.Tensor) and not kwargs
        before = Observed.now(tensor) if tensor is not None else None
        open_calls.append((len(seen.sequence), before, plain))
        seen.sequence.append(path)

    def leave(_module: torch.nn.Module, _args: Any, _kw: Any, out: Any, *, path: str) -> None:
        order, before, plain = open_calls.pop()
        after = Observed.now(out) if isinstance(out, torch.Tensor) else None
        seen.calls.setdefault(path, []).append(Call(path, order, before, after, plain))

    handles = []
    try:
        for path, module in model.named_modules():
            if path in paths:
                first = functools.partial(enter, path=path)
                last = functools.partial(leave, path=path)
                handles.append(module.register_forward_pre_hook(first, with_kwargs=True))
                handles.append(module.register_forward_hook(last, with_kwargs=True))
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return seen
