"""A patch kernel as a matrix: rows of one whole patch each, times it, in the host's dtype."""

from __future__ import annotations

import torch
from flashrt_runtime.impls.shared import request as asked
from flashrt_runtime.impls.shared.body import overload, size, smoke

from flashrt_runtime.contract import BindRequest, BoundSeam, Reason, Refusal

KERNEL = ("N", "C", "Pt", "Ph", "Pw")


class PatchBody(torch.nn.Module):
    """``forward(x [..., C*Pt*Ph*Pw]) -> [..., N]`` by one operator call."""

    def __init__(
        self, operator: str, weight: torch.Tensor, bias: torch.Tensor | None, seam: str
    ) -> None:
        super().__init__()
        self.operator = overload(operator)
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("bias", bias, persistent=False)
        self.seam = seam

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` has the order channel, frame, height, width; the result has its dtype."""
        return self.operator(x, self.weight, self.bias, self.seam)


def patch_seam(request: BindRequest, operator: str) -> BoundSeam:
    """Reshape the kernel once, [N, C, Pt, Ph, Pw] to [N, C*Pt*Ph*Pw]. Raises :class:`Refusal`."""
    kernel = asked.optional(request, "weight")
    if kernel is None:
        raise Refusal(Reason.BINDING, "the slot 'weight' was not given", subject=request.seam.id)
    stated = tuple(request.seam.dims.get(dim, -1) for dim in KERNEL)
    if kernel.dim() != 5 or (request.seam.dims and tuple(kernel.shape) != stated):
        raise Refusal(
            Reason.LAYOUT,
            f"the slot 'weight' has shape {list(kernel.shape)}; one of {list(KERNEL)} = "
            f"{list(stated)} was expected",
            subject=request.seam.id,
        )
    bias = asked.bias(request, "bias", kernel.shape[0])
    asked.stated_bias(request, bias is not None)
    dtype = request.weights["weight"].dtype  # the checks widened it, which loses nothing
    weight = kernel.flatten(1).to(dtype, copy=True)
    bias = None if bias is None else bias.to(dtype)
    body = PatchBody(operator, weight, bias, request.seam.id)
    smoke(body, weight.shape[1], weight.shape[0], request.seam.id, like=weight)
    held = [weight] if bias is None else [weight, bias]
    return BoundSeam({"self": body}, operator, size(held))
