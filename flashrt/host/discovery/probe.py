"""Runs a copy of one module of a host on values that its real input did not hold.

The host's own module is never run again: it may count its calls. What is copied is small, because
the projections inside are replaced by stand-ins that say chosen values and write down what they
read; so the copy also runs in fp32 whatever the host's dtype is.
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from flashrt.host.discovery.near_miss import NearMiss
from flashrt.host.discovery.projection import Projection
from flashrt_runtime.reason import Reason, Refusal

_MOST = 1 << 22  # values that a copy or an input may hold
_VALUES = 2048  # of an activation that are looked at, at least
_LOUDEST = 100.0  # where a clamp at a usual limit has long cut in
_PLAIN = frozenset({type(None), bool, int, float, str})
_HOLDERS = frozenset({dict, set, list, OrderedDict})


class StandIn(torch.nn.Module):
    """Stands for a projection: says ``values`` [R, N], row after row, whatever it reads."""

    def __init__(self, projection: Projection, values: torch.Tensor) -> None:
        super().__init__()
        self.in_features, self.out_features = projection.k, projection.n
        # a host may ask for its dtype or shape; it takes no memory
        self.weight = torch.zeros((), device=values.device).expand(projection.n, projection.k)
        self.bias = None if projection.bias_key is None else self.weight[:, 0]
        self.values = values
        self.read: list[torch.Tensor] = []
        self.said: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``values`` for as many rows as ``x`` [..., K] has, [..., N]."""
        self.read.append(x.detach().clone())
        self.said.append(cycled(self.values, (*x.shape[:-1], self.values.shape[-1])))
        return self.said[-1].clone()


@dataclass(frozen=True)
class Again:
    """One run of a copy: what it read and put out, and what each stand-in read and said."""

    module: torch.nn.Module
    x: torch.Tensor
    out: Any
    read: Mapping[str, torch.Tensor]
    said: Mapping[str, torch.Tensor]


def copy_of(
    module: torch.nn.Module, instead: Mapping[torch.nn.Module, torch.nn.Module] | None = None
) -> torch.nn.Module:
    """A copy that shares nothing with the module. ``instead`` maps modules to their stand-ins.

    Raises :class:`Refusal` HOST where a copy would be large, or could still reach the original.
    """
    instead = instead or {}
    size, todo = 0, [module]
    while todo:
        each = todo.pop()
        if each in instead:
            continue
        if isinstance(each.__dict__.get("forward"), FunctionType):
            what = "its forward was replaced by a function, which a copy of it would share"
            raise Refusal(Reason.HOST, what)
        own = (*each._parameters.values(), *each._buffers.values())
        size += sum(t.numel() for t in own if t is not None)
        todo += [child for child in each._modules.values() if child is not None]
    if size > _MOST:
        raise Refusal(Reason.HOST, f"it holds {size} values besides projections, many to copy")
    made = copy.deepcopy(module, {id(old): new for old, new in instead.items()})
    for each in made.modules():
        each._forward_hooks.clear()
        each._forward_pre_hooks.clear()
    return made


def likeness(
    module: torch.nn.Module, instead: Mapping[torch.nn.Module, Hashable] | None = None
) -> Hashable:
    """What a copy computes, as a key: equal keys are one code over equal numbers.

    Vectors are by shape, whatever their values are, and modules by what ``instead`` says for them;
    what cannot be told to be equal is by identity, so that it is like nothing else.
    """
    if instead and module in instead:
        return instead[module]
    own = vars(module)
    told: list[Any] = [type(module), tuple(own)]
    for name, value in own.items():
        kind = type(value)
        if kind in _PLAIN:
            told += (kind, value)
        elif kind in _HOLDERS and not value:
            told.append(kind)
        elif name == "_parameters":
            told.append(tuple([(key, _shaped(p)) for key, p in value.items()]))
        elif name == "_modules":
            told.append(tuple([(key, _inner(child, instead)) for key, child in value.items()]))
        else:
            told.append(id(value))
    return tuple(told)


def _inner(
    child: torch.nn.Module | None, instead: Mapping[torch.nn.Module, Hashable] | None
) -> Hashable:
    return None if child is None else likeness(child, instead)


def _shaped(parameter: torch.nn.Parameter | None) -> Hashable:
    if parameter is None or parameter.dim() != 1:
        return id(parameter)
    return parameter.shape, parameter.dtype, parameter.device


def cycled(rows: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """``rows`` [R, D], one after the other and over again, as a tensor of ``shape`` [..., D]."""
    count = math.prod(shape[:-1])
    index = torch.arange(count, device=rows.device) % rows.shape[0]
    return rows[index].reshape(shape)


def run(
    module: Callable[[torch.Tensor], Any], rows: torch.Tensor, shape: tuple[int, ...]
) -> tuple[torch.Tensor, Any]:
    """Input and output of a copy that reads ``rows`` [R, D] at the rank of ``shape``.

    One that accepts no other shape than the observed one reads rows in that shape. Raises what the
    module raises. The host's random numbers go on as if nothing had run.
    """
    short = (1,) * (len(shape) - 2) + (rows.shape[0], shape[-1]) if len(shape) > 1 else shape
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            x = cycled(rows, short)
            return x, module(x.clone())
        except Exception:
            if math.prod(shape) > _MOST or short == shape:
                raise
            x = cycled(rows, shape)
            return x, module(x.clone())


def rows_like(width: int, device: torch.device, count: int = 0) -> torch.Tensor:
    """Random rows [R, width] in fp32, the same every time; R·width is about 2048."""
    count = count or max(2, min(16, _VALUES // max(1, width)))
    drawn = torch.Generator().manual_seed(width)
    return torch.randn(count, width, generator=drawn).to(device)


def loud(width: int, device: torch.device) -> torch.Tensor:
    """Rows [R, width] of what an activation may read: mostly within ±8, a few as far as ±100."""
    unit = rows_like(width, device)
    even = torch.erf(unit / 2**0.5)  # uniform within ±1
    return torch.where(even.abs() < 0.8, even * 10.0, even.sign() * _LOUDEST ** even.abs())


def again(
    module: torch.nn.Module,
    shape: tuple[int, ...],
    instead: Mapping[str, tuple[Projection, torch.Tensor]],
) -> Again:
    """Run a copy of ``module`` in fp32, in which the modules at these paths are stand-ins.

    Paths are within the module; each comes with the values that it says. ``shape`` is that of the
    module's real input. Vectors of the copy are random, so that no two are alike. Raises what the
    copy raises, or :class:`Refusal`.
    """
    stands = {path: StandIn(*each) for path, each in instead.items()}
    made = copy_of(module, {module.get_submodule(path): one for path, one in stands.items()})
    made = made.float()
    device = next(iter(stands.values())).values.device
    drawn = torch.Generator().manual_seed(0)
    for parameter in made.parameters():
        if parameter.dim() == 1:
            values = torch.randn(parameter.shape, generator=drawn)
            parameter.data = (values.sign() * (values.abs() + 0.5)).to(device)
    count = max(one.values.shape[0] for one in stands.values())
    x, out = run(made, rows_like(shape[-1], device, count), shape)
    if not all(one.read for one in stands.values()):
        raise Refusal(Reason.HOST, "a copy of it did not call the same projections")
    return Again(
        made,
        x,
        out,
        {path: one.read[-1] for path, one in stands.items()},
        {path: one.said[-1] for path, one in stands.items()},
    )


def unprobed(path: str, structure: str, error: Exception) -> NearMiss:
    """The refusal of a module whose copy could not be made or run."""
    what = str(error).splitlines()[0] if str(error) else "no message"
    detail = f"a copy of it could not be run on other values: {type(error).__name__}: {what}"
    return NearMiss.of(path, structure, Reason.HOST, detail)
