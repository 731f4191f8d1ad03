"""Which tensors a step reads that it was not given, and who holds them."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

DEPTH = 4


@dataclass(frozen=True)
class Holder:
    """A place that holds a tensor: its name in words, and how to put another tensor there."""

    name: str
    tensor: torch.Tensor
    put: Callable[[Any], None]


def reading(given: Iterable[torch.Tensor]) -> Any:
    """A context that keeps, in ``found``, every tensor that an operator read inside it and that
    was neither ``given`` nor made inside it; each storage once, by its address. ``written`` has
    those of them that were written, whole and flat, with a copy of what they held before."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    fresh = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default)

    class Reading(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.found: dict[int, torch.Tensor] = {}
            self.known = {_address(one) for one in given}
            self.written: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

        def keep(self, func: Any, args: Any, named: Any) -> None:
            for index, argument in enumerate(func._schema.arguments):
                if argument.alias_info is None or not argument.alias_info.is_write:
                    continue
                value = args[index] if index < len(args) else named.get(argument.name)
                for one in tree_leaves(value):
                    if isinstance(one, torch.Tensor) and _address(one) in self.found:
                        whole = one.detach().new_empty(0).set_(one.untyped_storage())
                        self.written.setdefault(_address(one), (whole, whole.clone()))

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            named = kwargs or {}
            for one in tree_leaves((args, named)):
                if isinstance(one, torch.Tensor) and _address(one) not in self.known:
                    self.known.add(_address(one))
                    if func not in fresh and one.numel():
                        self.found[_address(one)] = one
            if func._schema.is_mutable:
                self.keep(func, args, named)
            result = func(*args, **named)
            self.known.update(
                _address(one) for one in tree_leaves(result) if isinstance(one, torch.Tensor)
            )
            return result

    return Reading()


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def modules_of(step: Any) -> list[torch.nn.Module]:
    """The modules that a step is, or holds in its closure, arguments or attributes."""
    from torch import nn

    found: list[nn.Module] = []
    for _, value, _ in _held(step, "", DEPTH, set()):
        if isinstance(value, nn.Module):
            found.append(value)
    return [step, *found] if isinstance(step, nn.Module) else found


def holders(step: Any) -> list[Holder]:
    """Every tensor that a step holds outside of modules, by the name of its place."""
    import torch

    return [
        Holder(name, value, put)
        for name, value, put in _held(step, "", DEPTH, set())
        if isinstance(value, torch.Tensor)
    ]


def _held(
    value: Any, name: str, depth: int, seen: set[int]
) -> Iterator[tuple[str, Any, Callable[[Any], None]]]:
    """``(name, value, put)`` of what ``value`` holds, at most ``depth`` containers deep."""
    import torch

    if depth == 0 or id(value) in seen or isinstance(value, (torch.Tensor, torch.nn.Module)):
        return
    seen.add(id(value))
    for key, one, put in _children(value):
        inner = f"{name}{key}" if not name or key.startswith("[") else f"{name}.{key}"
        yield inner, one, put
        yield from _held(one, inner, depth - 1, seen)


Child = tuple[str, Any, Callable[[Any], None]]


def _children(value: Any) -> Iterator[Child]:
    if isinstance(value, types.MethodType):
        yield "self", value.__self__, _nowhere
        yield from _children(value.__func__)
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, functools.partial):
        yield "func", value.func, _nowhere
        for name, one in value.keywords.items():
            yield name, one, _setter(value.keywords, name)
    elif type(value) is dict:
        for key, one in list(value.items()):
            yield f"[{key!r}]", one, _setter(value, key)
    elif type(value) in (list, tuple):
        for index, one in enumerate(value):
            yield f"[{index}]", one, _setter(value, index) if type(value) is list else _nowhere
    elif not isinstance(value, (type, types.ModuleType)) and hasattr(value, "__dict__"):
        for name, one in list(vars(value).items()):
            yield name, one, _setter(vars(value), name)


def _of_function(function: types.FunctionType) -> Iterator[Child]:
    """Its closure, the globals that its code names, and its keyword defaults."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            yield name, cell.cell_contents, functools.partial(setattr, cell, "cell_contents")
        except ValueError:  # a cell that nothing was put into yet
            continue
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield name, function.__globals__[name], _setter(function.__globals__, name)
    for name, one in (function.__kwdefaults__ or {}).items():
        yield name, one, _setter(function.__kwdefaults__, name)


def _setter(place: Any, key: Any) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        place[key] = value

    return put


def _nowhere(value: Any) -> None:
    """A place that nothing can be put into."""
