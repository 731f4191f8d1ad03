"""Who reads what a module returns: collected from real forwards, never assumed from a graph.

What only its readers read, directly, may be handed to them in another form. So one use by anything
else, in any forward, is an objection: a function of torch outside of the readers, a view, a look at
the dtype, a copy that outlives the forward.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# What a tensor in another dtype answers the same.
_GETTERS = ("shape", "device", "ndim", "is_cuda", "is_cpu")
_ALIKE = frozenset(
    (
        *(getattr(torch.Tensor, name).__get__ for name in _GETTERS),
        *(torch.Tensor.size, torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.__len__),
    )
)


@dataclass(frozen=True)
class Reads:
    """The modules that read a module's output, in call order; ``objection`` where others do."""

    readers: tuple[str, ...]
    objection: str = ""


@dataclass(eq=False)
class _Emission:
    """One call of a producer: its output, while it lives, and what became of it."""

    producer: str
    alive: weakref.ref[torch.Tensor]
    readers: list[str] = field(default_factory=list)
    objection: str = ""

    def object(self, what: str) -> None:
        self.objection = self.objection or what


class _Watch(TorchFunctionMode):
    """Sees every function of torch that is given a watched tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.by_id: dict[int, _Emission] = {}
        self.every: list[_Emission] = []
        self.inside: list[_Emission | None] = []

    def emission(self, value: Any) -> _Emission | None:
        """The emission that this very tensor is."""
        found = self.by_id.get(id(value))
        return found if found is not None and found.alive() is value else None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note who looks, then call."""
        given = kwargs or {}
        if self.by_id and func not in _ALIKE:
            for value in _tensors((args, given)):
                seen = self.emission(value)
                if seen is not None and seen not in self.inside:
                    seen.object(f"{getattr(func, '__name__', func)} reads it outside of them")
        return func(*args, **given)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def observe_reads(
    model: torch.nn.Module,
    producers: Collection[str],
    readers: Collection[str],
    runs: Iterable[Callable[[], Any]],
) -> dict[str, Reads]:
    """For every producer (a module's path), which of ``readers`` read its output and nothing else.

    ``runs`` are forwards of ``model``, all of which are run, without gradients. A producer that was
    not called has an objection. The model is left as it was.
    """
    watch = _Watch()
    with _hooks(model, producers, readers, watch), torch.no_grad():
        for run in runs:
            with watch:
                out = run()
            for seen in watch.by_id.values():
                if seen.alive() is not None:
                    seen.object("it outlives the forward: returned, or kept by the host")
            watch.by_id.clear()
            del out
    return {path: _summed([e for e in watch.every if e.producer == path]) for path in producers}


def _summed(seen: list[_Emission]) -> Reads:
    if not seen:
        return Reads((), "it was not called")
    first = tuple(seen[0].readers)
    for one in seen:
        if one.objection:
            return Reads(first, one.objection)
        if tuple(one.readers) != first:
            other = ", ".join(one.readers) or "none"
            return Reads(first, f"its readers change from call to call: {other} in one")
        if len(set(one.readers)) != len(one.readers):
            return Reads(first, "one of them reads it twice")
    return Reads(first)


@contextmanager
def _hooks(
    model: torch.nn.Module, producers: Collection[str], readers: Collection[str], watch: _Watch
) -> Iterator[None]:
    with ExitStack() as stack:
        for path in producers:
            hook = model.get_submodule(path).register_forward_hook(_emits(path, watch))
            stack.callback(hook.remove)
        for path in readers:
            module = model.get_submodule(path)
            before = module.register_forward_pre_hook(_enters(path, watch), with_kwargs=True)
            stack.callback(before.remove)
            after = module.register_forward_hook(_leaves(watch), always_call=True)
            stack.callback(after.remove)
        yield


def _emits(path: str, watch: _Watch) -> Callable[..., None]:
    def hook(module: torch.nn.Module, args: Any, out: Any) -> None:
        if not isinstance(out, torch.Tensor):
            return
        seen = _Emission(path, weakref.ref(out))
        if any(out is value for value in _tensors(args)):
            seen.object("it returns the tensor that it was given")
        watch.by_id[id(out)] = seen
        watch.every.append(seen)

    return hook


def _enters(path: str, watch: _Watch) -> Callable[..., None]:
    def hook(module: torch.nn.Module, args: Any, given: Any) -> None:
        first, rest = (args[0], (args[1:], given)) if args else (None, given)
        seen = watch.emission(first)
        watch.inside.append(seen)
        if seen is not None:
            seen.readers.append(path)
        for value in _tensors(rest):
            other = watch.emission(value)
            if other is not None:
                other.object(f"{path} reads it as something else than its first argument")

    return hook


def _leaves(watch: _Watch) -> Callable[..., None]:
    def hook(module: torch.nn.Module, args: Any, out: Any) -> None:
        watch.inside.pop()

    return hook
