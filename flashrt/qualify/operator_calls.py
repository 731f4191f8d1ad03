"""The operator calls of a treated arm's seams, recorded on real inputs, to be probed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten

from flashrt_runtime.operators import NAMESPACE

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Call:
    """One call of a seam's operator, its arguments flattened.

    ``moving`` are the places of the tensors that a forward makes anew (activations); the other
    tensors are the seam's own (weights).
    """

    seam: str
    operator: str
    run: Callable[..., Any]
    leaves: tuple[Any, ...]
    tree: TreeSpec
    moving: tuple[int, ...]

    def answer(self, activations: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The tensors that the operator returns for these activations."""
        leaves = list(self.leaves)
        for place, value in zip(self.moving, activations, strict=True):
            leaves[place] = value
        args, named = tree_unflatten(leaves, self.tree)
        out, _ = tree_flatten(self.run(*args, **named))
        return tuple(value for value in out if isinstance(value, torch.Tensor))

    @property
    def activations(self) -> list[torch.Tensor]:
        """The activations it was recorded with."""
        return [self.leaves[place] for place in self.moving]

    @property
    def weights(self) -> list[torch.Tensor]:
        """Its other tensors, where their bytes can be read (an opaque pack's cannot)."""
        rest = [v for place, v in enumerate(self.leaves) if place not in self.moving]
        tensors = [v for v in rest if isinstance(v, torch.Tensor)]
        return [v for v in tensors if v.layout is torch.strided]


class _Recorder(TorchFunctionMode):
    """Keeps every ``flashrt::`` call that is made while it is on, before it decomposes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, list[Any], TreeSpec]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        named = dict(kwargs or {})
        if _name(func).startswith(NAMESPACE):
            self.calls.append((func, *tree_flatten((args, named))))
        return func(*args, **named)


def _name(func: Any) -> str:
    """``flashrt::…`` of an operator or of one of its overloads; empty for another function."""
    if isinstance(func, torch._ops.OpOverload):
        return func.name().partition(".")[0]
    if isinstance(func, torch._ops.OpOverloadPacket):
        return str(func._qualified_op_name)
    return ""


class _Copies:
    """Copies of tensors; one that is met twice has one copy (siblings are given one tensor)."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, torch.Tensor]] = {}

    def of(self, value: Any) -> Any:
        """The value, its tensors copied."""
        return tree_map(self._one, value)

    def _one(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self._made:  # the original is kept too, so that its id stays its own
            self._made[id(value)] = value, value.clone()
        return self._made[id(value)][1]


@contextmanager
def seen_inputs(model: nn.Module, paths: Sequence[str]) -> Iterator[dict[str, Inputs]]:
    """What each of these modules is called with first, in the order of their calls, by path."""
    seen: dict[str, Inputs] = {}
    copies = _Copies()

    def hook_for(path: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
            if path not in seen:
                seen[path] = copies.of((args, named))

        return hook

    handles = [
        model.get_submodule(path).register_forward_pre_hook(hook_for(path), with_kwargs=True)
        for path in paths
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def operator_calls(
    bodies: Mapping[str, nn.Module], inputs: Mapping[str, Inputs], expected: Mapping[str, str]
) -> dict[str, Call]:
    """The call of every seam's expected operator, by seam; one that is not made is not there.

    ``bodies`` and ``inputs`` are by module path, ``inputs`` in call order; ``expected`` maps a
    seam's id to its operator. Each body is run twice over copies of its inputs: what lies
    elsewhere in the second call of its operator is an activation.
    """
    recorder = _Recorder()
    runs, given = [], []
    with torch.no_grad():
        for _ in range(2):
            recorder.calls = []
            given.append(_Copies().of(dict(inputs)))  # kept: no address is used twice
            with recorder:
                for path, (args, named) in given[-1].items():
                    # A body names its input as it likes: it is given by position.
                    bodies[path](*args, *named.values())
            runs.append(recorder.calls)
    found: dict[str, Call] = {}
    if len(runs[0]) != len(runs[1]):
        return found
    for (func, leaves, tree), (_, others, _same) in zip(*runs, strict=True):
        strings = [leaf for leaf in leaves if isinstance(leaf, str)]
        seam = strings[-1] if strings else ""
        if expected.get(seam) == _name(func) and len(leaves) == len(others):
            moving = tuple(i for i, leaf in enumerate(leaves) if _moved(leaf, others[i]))
            found.setdefault(seam, Call(seam, _name(func), func, tuple(leaves), tree, moving))
    return {seam: call for seam, call in found.items() if call.moving}


def _moved(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or one.layout is not torch.strided:
        return False
    return one.data_ptr() != other.data_ptr()
