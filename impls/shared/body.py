"""The modules that stand in a host's place: packed tensors and one operator call per forward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from flashrt_runtime.impls.shared import request as asked

from flashrt_runtime.contract import BindRequest, BoundSeam, Reason, Refusal

FFN = ("gate", "up", "down")
Pack = Callable[[torch.Tensor, str], list[torch.Tensor]]


def overload(name: str) -> Any:
    """The callable of a defined operator, by its qualified name ``flashrt::…``."""
    space, _, entry = name.partition("::")
    return getattr(getattr(torch.ops, space), entry).default


class SeamBody(torch.nn.Module):
    """Holds packed tensors as buffers that no ``state_dict`` shows, and calls one operator."""

    def __init__(self, operator: str, kernel: str, seam: str) -> None:
        super().__init__()
        self.operator = overload(operator)
        self.kernel = kernel
        self.seam = seam
        self.count = 0

    def hold(self, name: str, tensors: list[torch.Tensor]) -> None:
        """Keep the body's packed tensors as buffers ``name0``, ``name1``, …"""
        self.count = len(tensors)
        for i, tensor in enumerate(tensors):
            self.register_buffer(f"{name}{i}", tensor, persistent=False)

    def held(self, name: str) -> list[torch.Tensor]:
        """The tensors kept under ``name``, in order."""
        return [getattr(self, f"{name}{i}") for i in range(self.count)]


class LinearBody(SeamBody):
    """``forward(x [..., K]) -> [..., N]`` by one operator call."""

    def __init__(
        self,
        operator: str,
        packed: list[torch.Tensor],
        bias: torch.Tensor | None,
        kernel: str,
        seam: str,
    ) -> None:
        super().__init__(operator, kernel, seam)
        self.hold("weight", packed)
        self.register_buffer("bias", bias, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` [..., K] float32; returns [..., N] float32."""
        return self.operator(x, self.held("weight"), self.bias, self.kernel, self.seam)


class FfnBody(SeamBody):
    """``forward(x [..., D]) -> [..., D]`` by one operator call."""

    def __init__(
        self,
        operator: str,
        packed: Mapping[str, list[torch.Tensor]],
        biases: Mapping[str, torch.Tensor | None],
        recipe: str,
        seam: str,
    ) -> None:
        super().__init__(operator, recipe, seam)
        self.hold("weight", [t for slot in FFN for t in packed[slot]])
        for slot in FFN:
            self.register_buffer(f"{slot}_bias", biases[slot], persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` [..., D] float32, already normed; returns [..., D] float32."""
        biases = [self.gate_bias, self.up_bias, self.down_bias]
        return self.operator(x, self.held("weight"), biases, self.kernel, self.seam)


def smoke(
    body: torch.nn.Module, width: int, wanted: int, seam: str, *, like: torch.Tensor | None = None
) -> None:
    """One launch on one row: an entry that is present may still not execute here.

    ``like`` gives the row's device and dtype; the CPU and float32 when None.

    Raises :class:`Refusal`: FORM when it raises or returns another shape, NONFINITE when the
    result of a row of zeros is not finite.
    """
    row = torch.zeros(1, width) if like is None else like.new_zeros(1, width)
    try:
        with torch.no_grad():
            out = body(row)
    except RuntimeError as error:
        said = str(error).splitlines()[0][:200]
        raise Refusal(Reason.FORM, f"its smoke launch failed: {said}", subject=seam) from error
    if tuple(out.shape) != (1, wanted):
        raise Refusal(
            Reason.FORM,
            f"its smoke launch returned {list(out.shape)}; [1, {wanted}] was expected",
            subject=seam,
        )
    if not bool(torch.isfinite(out).all()):
        raise Refusal(Reason.NONFINITE, "its smoke launch on zeros is not finite", subject=seam)


def size(tensors: list[torch.Tensor]) -> int:
    """Bytes of plain packed tensors."""
    return sum(t.numel() * t.element_size() for t in tensors)


def linear_seam(
    request: BindRequest,
    operator: str,
    kernel: str,
    pack: Pack,
    *,
    notes: Mapping[str, str] | None = None,
    matrix_bytes: Callable[[torch.Tensor], int] | None = None,
) -> BoundSeam:
    """Bind a linear_proj. ``pack(matrix, point)`` packs; ``matrix_bytes`` counts an opaque pack."""
    matrix = asked.weight(request, "weight")
    bias = asked.bias(request, "bias", matrix.shape[0])
    asked.stated_bias(request, bias is not None)
    packed = pack(matrix, "x")
    body = LinearBody(operator, packed, bias, kernel, request.seam.id)
    smoke(body, matrix.shape[1], matrix.shape[0], request.seam.id)
    held = matrix_bytes(matrix) if matrix_bytes else size(packed)
    return BoundSeam(
        bodies={"self": body},
        operator=operator,
        weight_bytes=held + size([] if bias is None else [bias]),
        notes={"kernel": kernel, **(notes or {})},
    )


def ffn_seam(
    request: BindRequest,
    operator: str,
    kernel: str,
    pack: Pack,
    *,
    notes: Mapping[str, str] | None = None,
    matrix_bytes: Callable[[torch.Tensor], int] | None = None,
) -> BoundSeam:
    """Bind a decoder_ffn whose norm and residual stay in the host. Arguments as linear_seam's."""
    matrices = {slot: asked.weight(request, slot) for slot in FFN}
    asked.shapes(request, **matrices)
    biases = {s: asked.bias(request, f"{s}_bias", m.shape[0]) for s, m in matrices.items()}
    points = {"gate": "x_after_norm", "up": "x_after_norm", "down": "act_after_mul"}
    packed = {slot: pack(matrix, points[slot]) for slot, matrix in matrices.items()}
    recipe = f"{request.seam.variant['activation']}:{kernel}"
    body = FfnBody(operator, packed, biases, recipe, request.seam.id)
    width = matrices["down"].shape[0]
    smoke(body, width, width, request.seam.id)
    held = sum(matrix_bytes(m) if matrix_bytes else size(packed[s]) for s, m in matrices.items())
    return BoundSeam(
        bodies={"self": body},
        operator=operator,
        weight_bytes=held + size([b for b in biases.values() if b is not None]),
        notes={"kernel": kernel, **(notes or {})},
    )
