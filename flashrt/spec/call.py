"""The tensors of one call of a structure, held against its spec by name, count and dtype."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flashrt.spec import dims
from flashrt.spec.model import Presence, StructureSpec, TensorSpec, suggest
from flashrt.spec.repeat import base, count
from flashrt_runtime.contract import rows_of
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

# One tensor of a call: its own name, the spec's tensor it is, and the value.
Given = tuple[str, TensorSpec, Any]


def given(
    what: str,
    known: Mapping[str, TensorSpec],
    tensors: Mapping[str, torch.Tensor],
    variant: Mapping[str, str],
) -> list[Given]:
    """The tensors with the spec's entry of each; ``what`` is input or slot.

    Raises :class:`Refusal`: BINDING for a name that the spec does not have under this variant, one
    that is missing, or a gap in repeated tensors; DTYPE for one that is not of its fixed dtype.
    """
    live = {n: t for n, t in known.items() if t.applies(variant)}
    for name in tensors:
        tensor = live.get(base(name))
        if tensor is None or (name != tensor.name) != bool(tensor.repeat):
            raise Refusal(
                Reason.BINDING,
                f"there is no {what} {name!r} under this variant",
                subject=name,
                do=suggest(name, [f"{n}.0" if t.repeat else n for n, t in live.items()]),
            )
    there = {base(name) for name in tensors}
    for name, tensor in live.items():
        if tensor.presence is Presence.REQUIRED and name not in there:
            raise Refusal(Reason.BINDING, f"the {what} {name!r} is missing", subject=name)
    found = [(name, live[base(name)], value) for name, value in tensors.items()]
    for name, tensor, value in found:
        if tensor.dtype != "@binding" and str(value.dtype) != f"torch.{tensor.dtype}":
            raise Refusal(
                Reason.DTYPE,
                f"the {what} {name} is {value.dtype}, not {tensor.dtype}",
                subject=name,
            )
    return found


def whole_state(spec: StructureSpec, inputs: Iterable[str], variant: Mapping[str, str]) -> None:
    """Refuse state that is given in part (BINDING): a call carries all of it or starts afresh."""
    wanted = set(spec.state_inputs(variant))
    there = wanted & {base(name) for name in inputs}
    if there and there != wanted:
        raise Refusal(
            Reason.BINDING,
            f"{', '.join(sorted(there))} is given and {', '.join(sorted(wanted - there))} is not",
            subject=spec.id,
            do="give all of the state that the previous call returned, or none",
        )


def shapes_of(spec: StructureSpec, tensors: Sequence[Given]) -> Iterator[dims.Equation]:
    """What the tensors' shapes and counts say. Raises :class:`Refusal` (BINDING, SHAPE)."""
    for name, tensor, value in tensors:
        yield from dims.equations(tensor.dims, shape_of(spec, tensor, tuple(value.shape)), name)
    names = [name for name, _, _ in tensors]
    for repeated in {t.name: t for _, t, _ in tensors if t.repeat}.values():
        there = count(repeated.name, names)
        yield dims.Equation(dims.Name(repeated.repeat), there, f"the count of {repeated.name}")


def shape_of(spec: StructureSpec, tensor: TensorSpec, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with its leading dims folded into rows, where the spec's tensor begins with them.

    ``[2, 3, D]`` of a tensor that the spec writes ``[M, D]`` is ``(6, D)``.
    """
    if not tensor.dims or len(shape) < len(tensor.dims):
        return shape
    if spec.rows not in {str(option) for option in dims.options(tensor.dims[0])}:
        return shape
    tail = shape[len(shape) - len(tensor.dims) + 1 :]
    return (rows_of((*shape[: len(shape) - len(tail)], 1)), *tail)


def boundary_dtype(spec: StructureSpec, inputs: Mapping[str, torch.Tensor]) -> str:
    """The dtype of the inputs whose dtype the binding decides; empty where there is none."""
    for name, value in inputs.items():
        if spec.inputs[base(name)].dtype == "@binding":
            return str(value.dtype).removeprefix("torch.")
    return ""


def wanted_names(
    wanted: Mapping[str, TensorSpec], variant: Mapping[str, str], sizes: Mapping[str, int]
) -> list[str]:
    """The names of the tensors that exist under a variant, repeated ones one by one.

    Raises :class:`Refusal` (SHAPE) where nothing says how often a repeated tensor is there.
    """
    found: list[str] = []
    for tensor in wanted.values():
        if tensor.applies(variant):
            if tensor.repeat and tensor.repeat not in sizes:
                what = f"nothing says how often {tensor.name} is there"
                raise Refusal(Reason.SHAPE, what, subject=tensor.repeat)
            found += tensor.tensor_names(sizes)
    return found
