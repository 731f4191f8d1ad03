"""Where an adapter finds what it needs in one host module: filled by discovery, plain data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


class Parameters:
    """A callable's parameters, read once, so that binding a call is plain work in a traced graph.

    ``function`` takes no module: it is a bound method, or a free function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        found = inspect.signature(function).parameters
        self.names = tuple(name for name, p in found.items() if p.kind in positional)
        self.defaults = {
            name: p.default for name, p in found.items() if p.default is not inspect.Parameter.empty
        }

    def bind(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """A call's arguments by name, defaults filled in, ``**`` ones among them."""
        return {**self.defaults, **dict(zip(self.names, args, strict=False)), **named}


@dataclass(frozen=True)
class Argument:
    """A tensor in a call of forward: the parameter's name, and indices into what it was given."""

    name: str
    path: tuple[int | str, ...] = ()

    def take(self, arguments: Mapping[str, Any]) -> Any:
        """The value in what :meth:`Parameters.bind` returns. Raises as indexing does."""
        value = arguments[self.name]
        for step in self.path:
            value = value[step]
        return value


@dataclass(frozen=True)
class RopeCall:
    """A callable slot that rotates q and k: its name, its place, and its parameters' names."""

    name: str
    place: str  # "attribute" or "global", as flashrt_runtime.adapters.slots has it
    q: str
    k: str
    cos: str
    sin: str
    heads_first: bool  # whether q and k are [B, H, T, D] there, or [B, T, H, D]


@dataclass(frozen=True)
class SequencePlan:
    """One causal sequence: children that norm q and k, the child that projects v, the rotation."""

    q_norm: str
    k_norm: str
    v: str
    rope: RopeCall


@dataclass(frozen=True)
class Group:
    """One pack of a two-way attention: children that project, and where its tensors are given."""

    q: str
    k: str
    v: str
    out: str
    x: Argument
    cos: Argument
    sin: Argument


@dataclass(frozen=True)
class TwoWayPlan:
    """Both packs, their heads, and which pack's result forward returns first."""

    causal: Group
    full: Group
    heads: tuple[int, int, int]  # query heads, key heads, head dim
    causal_first: bool = True


@dataclass(frozen=True)
class VisionPlan:
    """A packed projection and its output projection, and where the call's tensors are given."""

    qkv: str
    out: str
    x: Argument
    cos: Argument
    sin: Argument
    heads: tuple[int, int]  # heads, head dim
    capacity: int  # tokens of every observed call
    lengths: Argument | None = None  # cumulative lengths of the sequences in the pack


@dataclass(frozen=True)
class DeltaPlan:
    """The slot that runs one step of the recurrence, and its parameters in boundary order."""

    name: str
    place: str
    parameters: Mapping[str, str]  # q, k, v, g, beta, state, and want_state or l2 where it has them
    heads: tuple[int, int]  # of keys, of values


Plan = SequencePlan | TwoWayPlan | VisionPlan | DeltaPlan


def record(plan: Plan) -> dict[str, Any]:
    """JSON form."""
    return {"kind": type(plan).__name__, **asdict(plan)}
