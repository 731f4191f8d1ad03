"""Calls of modules that run one code on arguments of one kind: what one computes, all do."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from flashrt.host.discovery.listener import own_forward, unlistened
from flashrt.host.discovery.torch_linear import of_torch
from flashrt_runtime.adapters.slots import plain_forward

if TYPE_CHECKING:
    import torch

    from flashrt.host.discovery.attention.tap import Site

_PLAIN = frozenset((type(None), bool, int, float, str))


def alike(site: Site, frames: int) -> Hashable:
    """Equal for calls of one code, with equal settings, given arguments of one kind.

    It says so of ``frames`` calls: of the site and of those around it, from the inside out. Vectors
    and matrices of torch's own projections are by shape: their values do not decide what is done
    with what the projections put out. What cannot be told to be equal is by identity.
    """
    said: list[Hashable] = []
    for frame in islice(site.frames(), frames):
        place = [int(part) for part in frame.path.split(".") if part.isdecimal()]
        given = [(name, kind(value)) for name, value in frame.given.items()]
        said += [plain_forward(frame.module), _settings(frame.module, place), tuple(given)]
    return tuple(said)


def _settings(module: torch.nn.Module, place: Collection[int]) -> Hashable:
    """All that a module holds, and those within. ``place``: where it is in the lists that hold it.

    A number that says no more than that is a setting that all of a list share.
    """
    own = module._parameters
    if of_torch(module):
        return tuple([(name, None if p is None else (p.shape, p.dtype)) for name, p in own.items()])
    bare = _bare()
    held: list[Hashable] = [
        (name, _value(unlistened(value), place))
        for name, value in vars(module).items()
        if name not in bare or (value and name not in ("_parameters", "_modules"))
        if name != "forward"
    ]
    held.append(own_forward(module))
    held += [
        (name, id(p) if p is not None and p.dim() != 1 else kind(p)) for name, p in own.items()
    ]
    held += [
        (name, None if child is None else _settings(child, place))
        for name, child in module._modules.items()
    ]
    return type(module), tuple(held)


@cache
def _bare() -> frozenset[str]:
    """What every module holds, empty or false where nothing was done to it."""
    import torch

    return frozenset(name for name in vars(torch.nn.Module()) if name[0] == "_")


def _value(value: Any, place: Collection[int]) -> Hashable:
    kind = type(value)
    if kind is int and value in place:
        return int, "its place"
    if kind in _PLAIN:
        return kind, value
    if kind is tuple:
        return kind, tuple([_value(one, ()) for one in value])
    return kind if not value and kind in (dict, set, list) else id(value)


def kind(value: Any) -> Hashable:
    """A value that is plain, the shape and dtype of a tensor, the type of anything else."""
    import torch

    if type(value) in _PLAIN:
        return type(value), value
    if isinstance(value, torch.Tensor):
        return type(value), value.shape, value.dtype
    inner = value if isinstance(value, (tuple, list)) else ()
    return type(value), tuple([kind(one) for one in inner])
