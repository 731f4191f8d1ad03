"""What every impl checks of a :class:`BindRequest` before it packs anything."""

from __future__ import annotations

import math

import torch

from flashrt_runtime.contract import BindRequest, Reason, Refusal


def weight(request: BindRequest, slot: str) -> torch.Tensor:
    """The slot's matrix [out, in], float32, contiguous, detached; the host's own is not changed.

    Raises :class:`Refusal`: BINDING when the slot is absent, LAYOUT when it is not a matrix,
    NONFINITE when one element is NaN or infinite.
    """
    found = optional(request, slot)
    if found is None:
        raise Refusal(
            Reason.BINDING, f"the weight slot {slot!r} was not given", subject=request.seam.id
        )
    if found.dim() != 2:
        raise Refusal(
            Reason.LAYOUT,
            f"the weight slot {slot!r} has {found.dim()} dims; a matrix [out, in] was expected",
            subject=request.seam.id,
        )
    return found


def optional(request: BindRequest, slot: str) -> torch.Tensor | None:
    """The slot's tensor as :func:`weight` gives it, of any rank, or None when it was not given."""
    given = request.weights.get(slot)
    if given is None:
        return None
    value = given.detach().to(torch.float32).contiguous()
    low, high = torch.aminmax(value) if value.numel() else (value.sum(), value.sum())
    if not (torch.isfinite(low) and torch.isfinite(high)):
        bad = int((~torch.isfinite(value)).sum())
        raise Refusal(
            Reason.NONFINITE,
            f"{bad} of {value.numel()} elements of the weight slot {slot!r} are NaN or infinite",
            subject=request.seam.id,
            do="repair the checkpoint",
        )
    return value


def bias(request: BindRequest, slot: str, width: int) -> torch.Tensor | None:
    """The slot's vector [width] or None. Raises LAYOUT when its shape is another."""
    value = optional(request, slot)
    if value is not None and tuple(value.shape) != (width,):
        raise Refusal(
            Reason.LAYOUT,
            f"the slot {slot!r} has shape {list(value.shape)}; [{width}] was expected",
            subject=request.seam.id,
        )
    return None if value is None else value.clone()


def stated_bias(request: BindRequest, present: bool) -> None:
    """Refuse (BINDING) a seam whose variant says one thing of the bias and whose slots another."""
    stated = request.seam.variant.get("bias")
    if stated is not None and (stated == "present") is not present:
        raise Refusal(
            Reason.BINDING,
            f"the variant says bias {stated}; a bias was {'given' if present else 'not given'}",
            subject=request.seam.id,
        )


def scale(request: BindRequest, point: str) -> float:
    """The point's activation scale (real value = scale × quantised value).

    Raises :class:`Refusal`: UNCALIBRATED when there is none, NONFINITE when it is NaN or infinite,
    DEAD when it is not above zero.
    """
    value = request.scales.get(point)
    if value is None:
        raise Refusal(
            Reason.UNCALIBRATED,
            f"the point {point!r} has no scale",
            subject=request.seam.id,
            do="calibrate with frames that reach it",
        )
    if not math.isfinite(value):
        raise Refusal(
            Reason.NONFINITE, f"the scale of {point!r} is {value}", subject=request.seam.id
        )
    if not (value > torch.finfo(torch.float32).tiny):
        raise Refusal(
            Reason.DEAD,
            f"the scale of {point!r} is {value}; it must be a normal number above zero",
            subject=request.seam.id,
            do="calibrate with frames on which the point is not zero",
        )
    return value


def shapes(request: BindRequest, **matrices: torch.Tensor) -> None:
    """Refuse (LAYOUT) a gated feed-forward whose gate, up and down do not fit one another."""
    gate, up, down = (matrices[name] for name in ("gate", "up", "down"))
    if gate.shape != up.shape or down.shape[1] != gate.shape[0] or down.shape[0] != gate.shape[1]:
        listed = ", ".join(f"{name} {list(m.shape)}" for name, m in matrices.items())
        raise Refusal(
            Reason.LAYOUT,
            f"the slots do not fit one another: {listed}",
            subject=request.seam.id,
            do="gate and up are [F, D], down is [D, F]",
        )
