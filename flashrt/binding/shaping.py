"""Makes the host's tensor the spec's: the steps of an address, and the layout of a slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from flashrt.binding.address import Address, Step
from flashrt.binding.model import Held, RegionBinding
from flashrt.binding.tree import Tree, expand
from flashrt_runtime.contract import Seam

if TYPE_CHECKING:
    import torch


def shaped(
    value: Any,
    steps: tuple[Step, ...],
    tensors: Mapping[str, torch.Tensor],
    owner: torch.nn.Module,
    index: int,
    *,
    look: Callable[[Address], torch.Tensor],
) -> torch.Tensor:
    """The value after every step. ``owner`` is the module whose attributes give sizes.

    ``look`` gives the tensor at a further address, which the step ``plus`` adds.

    Raises ``ValueError`` saying which step does not fit, and for a result that is no tensor.
    """
    import torch

    for i, step in enumerate(steps):
        try:
            value = (
                value + look(step.operand)
                if step.op == "plus"
                else _step(value, step, tensors, owner, index)
            )
        except (TypeError, ValueError, LookupError, RuntimeError, AttributeError) as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            raise ValueError(f"then[{i}] {step.op} {step.operand} does not fit: {said}") from error
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"a {type(value).__name__} is there and no tensor: say which item")
    return value


def _step(
    value: Any, step: Step, tensors: Mapping[str, torch.Tensor], owner: Any, index: int
) -> Any:
    op, operand = step.op, step.operand
    if op in ("add", "minus"):
        other = tensors[expand(operand, index)]
        return value + other if op == "add" else value - other
    if op in _PLAIN:
        return _PLAIN[op](value, operand)
    sizes = [_size(size, owner) for size in operand]
    if op == "chunk":
        parts, axis, which = sizes
        return value.chunk(parts, axis)[which]
    if op == "unflatten":
        axis, *counts = sizes
        return value.unflatten(axis, (*counts, -1) if len(counts) == 1 else counts)
    return getattr(value, op)(*sizes)  # narrow, flatten


_PLAIN: Mapping[str, Callable[[Any, Any], Any]] = {
    "item": lambda value, which: value[which],
    "axes": lambda value, order: value.permute(order),
    "unsqueeze": lambda value, axis: value.unsqueeze(axis),
    "squeeze": lambda value, axis: value.squeeze(axis),
}


def _size(size: int | str, owner: Any) -> int:
    if isinstance(size, int):
        return size
    return int(reduce(getattr, size.split("."), owner))


def slot_shape(held: Held, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The slot's shape as the spec writes it."""
    flat = held.layout == "conv_out_in_h_w" and len(shape) == 4
    return (*shape[:2], 1, *shape[2:]) if flat else shape


def slots(region: RegionBinding, seam: Seam, tree: Tree) -> dict[str, torch.Tensor]:
    """The slots' tensors as the spec writes them; views of the host's own."""
    held = {slot: tree.tensors[key].detach() for slot, key in seam.weights.items()}
    return {
        slot: tensor.reshape(slot_shape(region.weights[slot], tuple(tensor.shape)))
        for slot, tensor in held.items()
    }
