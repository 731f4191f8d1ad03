"""Seams whose weights arrive packed: what is checked of them, and the body that runs them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from flashrt_runtime.impls.shared import request as asked
from flashrt_runtime.impls.shared.body import LinearBody, size, smoke

from flashrt_runtime.contract import BindRequest, BoundSeam, Reason, Refusal

Dense = Callable[[list[torch.Tensor]], torch.Tensor]


class PackedBody(LinearBody):
    """A :class:`LinearBody` that can show the matrix it holds, for evidence."""

    widened: Dense

    def dense(self) -> torch.Tensor:
        """The float32 matrix [N, K] that the packed tensors stand for. It is not kept."""
        return self.widened(self.held("weight"))


def packed_seam(
    request: BindRequest,
    operator: str,
    kernel: str,
    packed: list[torch.Tensor],
    dense: Dense,
    *,
    width: int,
) -> BoundSeam:
    """Bind tensors that are packed already; ``width`` is K, the first tensor has N rows."""
    rows = packed[0].shape[0]
    bias = asked.bias(request, "bias", rows)
    asked.stated_bias(request, bias is not None)
    body = PackedBody(operator, packed, bias, kernel, request.seam.id)
    body.widened = dense
    smoke(body, width, rows, request.seam.id, like=packed[0].new_zeros((), dtype=torch.float32))
    return BoundSeam(
        bodies={"self": body},
        operator=operator,
        weight_bytes=size(packed) + size([] if bias is None else [bias]),
        notes={"kernel": kernel},
    )


def tensor(request: BindRequest, slot: str, dtype: torch.dtype, rank: int) -> torch.Tensor:
    """The slot's tensor as it was given, detached and contiguous.

    Raises :class:`Refusal`: BINDING when it is absent, DTYPE or LAYOUT when it is another kind.
    """
    given = request.weights.get(slot)
    if given is None:
        raise Refusal(
            Reason.BINDING, f"the packed slot {slot!r} was not given", subject=request.seam.id
        )
    if given.dtype != dtype:
        raise Refusal(
            Reason.DTYPE,
            f"the packed slot {slot!r} is {given.dtype}; {dtype} was expected",
            subject=request.seam.id,
        )
    if given.dim() != rank:
        raise Refusal(
            Reason.LAYOUT,
            f"the packed slot {slot!r} has shape {list(given.shape)}; {rank} dims were expected",
            subject=request.seam.id,
        )
    return given.detach().contiguous()


def scale(request: BindRequest, slot: str, shapes: tuple[tuple[int, ...], ...]) -> torch.Tensor:
    """The slot's scales, float32, of one of ``shapes``, every one finite and above zero.

    Raises :class:`Refusal`: BINDING, LAYOUT, NONFINITE, DEAD.
    """
    given = request.weights.get(slot)
    if given is None:
        raise Refusal(Reason.BINDING, f"the slot {slot!r} was not given", subject=request.seam.id)
    if tuple(given.shape) not in shapes:
        wanted = " or ".join(str(list(shape)) for shape in shapes)
        raise Refusal(
            Reason.LAYOUT,
            f"the slot {slot!r} has shape {list(given.shape)}; {wanted} was expected",
            subject=request.seam.id,
        )
    value = given.detach().to(torch.float32)
    if not bool(torch.isfinite(value).all()):
        raise Refusal(
            Reason.NONFINITE, f"{slot!r} holds a NaN or an infinity", subject=request.seam.id
        )
    if not bool((value > 0.0).all()):
        raise Refusal(
            Reason.DEAD, f"{slot!r} holds a scale that is not above zero", subject=request.seam.id
        )
    return value


def aligned(request: BindRequest, width: int, block: int) -> None:
    """Refuse (SHAPE) a width that whole blocks do not fill."""
    if width < block or width % block:
        raise Refusal(
            Reason.SHAPE,
            f"the width {width} is not a multiple of {block}, the format's block",
            subject=request.seam.id,
            do="leave this projection unquantised (the checkpoint's `ignore`)",
        )
