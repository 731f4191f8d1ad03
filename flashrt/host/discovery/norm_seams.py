"""Finds norm_fused: modules that normalise fp32 rows, with or without a residual that they add."""

from __future__ import annotations

import torch

from flashrt.host.discovery.near_miss import NORM_FUSED, Found, NearMiss
from flashrt.host.discovery.norms import Norm
from flashrt.host.discovery.view import View
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason


def find(view: View) -> Found:
    """norm_fused seams, and norms that it does not take: statistics, affine part, dtype, layout."""
    found = Found(misses=list(view.norm_misses))
    for norm in view.norms.values():
        found.add(_judge(norm))
    return found


def _judge(norm: Norm) -> Seam | NearMiss:
    objection: tuple[Reason, str] | None = None
    if norm.dtype is not torch.float32:
        kind = str(norm.dtype).removeprefix("torch.")
        objection = (Reason.DTYPE, f"it reads {kind}; the boundary of norm_fused is float32")
    elif not all(call.input and call.input.contiguous for call in norm.calls):
        objection = (Reason.LAYOUT, "it reads a view that is not contiguous")
    elif not norm.adds and not all(call.plain for call in norm.calls):
        objection = (Reason.LAYOUT, "it is not called with one positional tensor alone")
    if objection is not None:
        return NearMiss.of(norm.path, NORM_FUSED, *objection)
    return Seam(
        id=norm.path,
        structure=NORM_FUSED,
        members={"self": norm.path},
        variant={**norm.variant, "residual": "add" if norm.adds else "none"},
        dims={"D": norm.d},
        weights=norm.weights,
        points={"y": Point(norm.path, "output")},
    )
