"""Sees named tensors during one forward of a host; afterwards the host is as it was."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from flashrt.binding.address import Address, Capture
from flashrt.binding.callee import callee_of, replaced

if TYPE_CHECKING:
    import torch

OUTPUT = "output"
_SDPA = ("query", "key", "value", "attn_mask")
# module path (index filled in), capture, slot or which attention: what was seen, by name
Key = tuple[str, Capture, str]


class Taps:
    """What the first call of each addressed module saw, by :data:`Key` and name.

    Tensors are copied when they are seen, so that a host that writes them in place (a cache) does
    not change what was seen.
    """

    def __init__(self, modules: Mapping[str, torch.nn.Module]) -> None:
        self._modules = modules
        self._wanted: dict[Key, set[str]] = {}
        self._seen: dict[Key, dict[str, Any]] = {}
        self._running: dict[Key, int] = {}  # and how many attentions it has made

    def want(self, address: Address, module: str) -> None:
        """Add an address whose module is at this path."""
        key = (module, address.capture, address.part)
        self._wanted.setdefault(key, set()).add(_name(address))

    def get(self, address: Address, module: str) -> Any:
        """What was seen there; None where a caller passed None.

        Raises ``LookupError`` saying what did not happen.
        """
        key = (module, address.capture, address.part)
        if key not in self._seen:
            raise LookupError(_missed(address, module))
        name = _name(address)
        if name not in self._seen[key]:
            raise LookupError(f"{address.slot or module} takes no {name or 'argument'}")
        return self._seen[key][name]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Run the host inside; hooks, wrapped callables and the mode are gone afterwards."""
        with ExitStack() as stack:
            for key in self._wanted:
                module, capture, slot = key
                if capture is Capture.CALL:
                    callee = callee_of(self._modules[module], slot)
                    if not _is_module(callee):
                        watch = partial(self._called, key)
                        stack.enter_context(replaced(self._modules[module], slot, watch))
                        continue
                    self._hook(stack, callee, key)
                else:
                    self._hook(stack, self._modules[module], key)
            if any(capture is Capture.SDPA for _, capture, _ in self._wanted):
                stack.enter_context(_mode(self._attended))
            yield

    def _hook(self, stack: ExitStack, module: torch.nn.Module, key: Key) -> None:
        if key[1] is Capture.SDPA:
            enter = module.register_forward_pre_hook(lambda *_: self._began(key))
            leave = module.register_forward_hook(lambda *_: self._left(key), always_call=True)
        else:
            enter = module.register_forward_pre_hook(
                partial(self._entered, key, module.forward), with_kwargs=True
            )
            leave = module.register_forward_hook(partial(self._returned, key))
        stack.callback(enter.remove)
        stack.callback(leave.remove)

    def _entered(
        self, key: Key, forward: Any, _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if key[1] is not Capture.OUTPUT and key not in self._seen:
            self._seen[key] = _arguments(forward, args, kwargs, self._wanted[key])

    def _returned(self, key: Key, _module: Any, _args: Any, output: Any) -> None:
        if OUTPUT in self._wanted[key]:
            self._seen.setdefault(key, {}).setdefault(OUTPUT, _copy(output))

    def _called(self, key: Key, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        first = key not in self._seen
        if first:
            self._seen[key] = _arguments(function, args, kwargs, self._wanted[key])
        output = function(*args, **kwargs)
        if first and OUTPUT in self._wanted[key]:
            self._seen[key][OUTPUT] = _copy(output)
        return output

    def _began(self, key: Key) -> None:
        self._running[key] = 0

    def _left(self, key: Key) -> None:
        self._running.pop(key, None)

    def _attended(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        waiting = []
        for key, made in self._running.items():
            if made == int(key[2]) and key not in self._seen:
                waiting.append(key)
            self._running[key] = made + 1
        if not waiting:
            return
        given = dict(zip(_SDPA, args, strict=False)) | {n: kwargs[n] for n in _SDPA if n in kwargs}
        held = {name: _copy(value) for name, value in given.items()}
        for key in waiting:
            self._seen[key] = {"attn_mask": None, **held, OUTPUT: _copy(output)}


def _name(address: Address) -> str:
    return OUTPUT if address.capture is Capture.OUTPUT else address.name


def _missed(address: Address, module: str) -> str:
    if address.capture is Capture.SDPA:
        after = f" after the first {address.nth}" if address.nth else ""
        return f"no scaled_dot_product_attention was called while {module} ran{after}"
    if address.capture is Capture.CALL:
        return f"{module}.{address.slot} was not called"
    return f"{module} was not called"


def _is_module(value: Any) -> bool:
    import torch

    return isinstance(value, torch.nn.Module)


def _copy(value: Any) -> Any:
    """The value with its tensors copied, in tuples, lists and mappings too."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {name: _copy(held) for name, held in value.items()}
    if isinstance(value, (tuple, list)):
        return [_copy(held) for held in value]
    return value


def _arguments(
    function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], wanted: set[str]
) -> dict[str, Any]:
    """The wanted arguments of a call by parameter name; ``""`` is the first tensor."""
    import torch

    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
    except TypeError:  # a decorator takes more than the function whose signature it shows
        given = dict(zip(signature.parameters, args, strict=False)) | dict(kwargs)
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            given |= given.pop(name, {})
    found = {name: _copy(given[name]) for name in wanted if name in given}
    if "" in wanted:
        some = (v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor))
        found.update({"": _copy(first)} if (first := next(some, None)) is not None else {})
    return found


def _mode(attended: Any) -> Any:
    """Calls ``attended(args, kwargs, output)`` after each scaled_dot_product_attention."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            output = func(*args, **(kwargs or {}))
            if func is torch.nn.functional.scaled_dot_product_attention:
                attended(args, kwargs or {}, output)
            return output

    return Watch()
