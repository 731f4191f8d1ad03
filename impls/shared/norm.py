"""Norms in float32, by the formulas of norm_fused, and the body that stands for one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from flashrt_runtime.impls.shared import request as asked
from flashrt_runtime.impls.shared.body import SeamBody, size

from flashrt_runtime.contract import BindRequest, BoundSeam, Reason, Refusal


def normed(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, recipe: str
) -> torch.Tensor:
    """``x`` [..., D] normalised over D; ``recipe`` is ``kind:eps``, kinds as norm_fused names them.

    A row with a NaN or an infinity comes out as NaN, all of it.
    """
    kind, _, eps = recipe.partition(":")
    nothing = (x - x).sum(-1, keepdim=True)
    centred = x - x.mean(-1, keepdim=True) if kind == "layer_affine" else x
    y = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + float(eps))
    y = y * (weight + 1.0 if kind == "rms_offset" else weight)
    return (y if bias is None else y + bias) + nothing


class NormBody(SeamBody):
    """``forward(x [..., D]) -> [..., D]`` in the operator's own output dtype."""

    def __init__(
        self,
        operator: str,
        held: list[torch.Tensor],
        bias: torch.Tensor | None,
        recipe: str,
        seam: str,
    ) -> None:
        super().__init__(operator, recipe, seam)
        self.hold("weight", held)
        self.register_buffer("bias", bias, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` [..., D] float32."""
        return self.operator(x, self.held("weight"), self.bias, self.kernel, self.seam)


def norm_seam(
    request: BindRequest, operator: str, more: list[torch.Tensor], notes: Mapping[str, str]
) -> BoundSeam:
    """Bind a norm_fused with a weight; ``more`` is held behind it. Raises :class:`Refusal`."""
    seam = request.seam
    weight = asked.optional(request, "weight")
    if weight is None or weight.dim() != 1:
        has = "none was given" if weight is None else f"it has {weight.dim()} dims"
        raise Refusal(Reason.LAYOUT, f"the norm's weight is a vector [D]; {has}", subject=seam.id)
    bias = asked.bias(request, "bias", weight.shape[0])
    kind = seam.variant["norm"]
    if (kind == "layer_affine") is not (bias is not None):
        said = "given" if bias is not None else "not given"
        raise Refusal(Reason.BINDING, f"the norm is {kind}; a bias was {said}", subject=seam.id)
    recipe = f"{kind}:{seam.variant['eps']}"
    body = NormBody(operator, [weight.clone(), *more], bias, recipe, seam.id)
    _smoke(body, weight.shape[0])
    held = [weight] if bias is None else [weight, bias]
    return BoundSeam({"self": body}, operator, size(held), {"recipe": recipe, **notes})


def _smoke(body: NormBody, width: int) -> None:
    """One launch on a row of ones. Raises :class:`Refusal` (FORM, NONFINITE)."""
    try:
        with torch.no_grad():
            out = body(torch.ones(1, width)).to(torch.float32)
    except RuntimeError as error:
        said = str(error).splitlines()[0][:200]
        raise Refusal(Reason.FORM, f"its smoke launch failed: {said}", subject=body.seam) from error
    if tuple(out.shape) != (1, width) or not bool(torch.isfinite(out).all()):
        what = f"its smoke launch gave {list(out.shape)}, or values that are not finite"
        raise Refusal(Reason.NONFINITE, what, subject=body.seam)
