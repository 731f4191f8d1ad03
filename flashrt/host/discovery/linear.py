"""Finds linear_proj: every projection that no feed-forward has taken."""

from __future__ import annotations

import copy
from functools import partial

import torch

from flashrt.host.discovery.near_miss import LINEAR_PROJ, Found, NearMiss
from flashrt.host.discovery.probe import run
from flashrt.host.discovery.projection import Projection, computes
from flashrt.host.discovery.view import View
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason

_LOUDER = 1000.0


def find(view: View, taken: set[str]) -> Found:
    """linear_proj seams. What only looks like one was said when projections were read."""
    found = Found()
    modules = dict(view.leaves)
    for projection in view.projections.values():
        if projection.path not in taken:
            judge = partial(_judge, projection, modules[projection.path])
            found.look(projection.path, LINEAR_PROJ, judge)
    return found


def _judge(projection: Projection, module: torch.nn.Module) -> Seam | NearMiss:
    if projection.dead:
        what = "all that was kept of what it read is zero"
        return NearMiss.of(projection.path, LINEAR_PROJ, Reason.AMBIGUOUS, what)
    if type(module).forward is torch.nn.Linear.forward or _anywhere(projection, module):
        return _seam(projection)
    what = "its output is its input times its weight (+ bias) where it was observed, and not on "
    what += "a larger input"
    return NearMiss.of(projection.path, LINEAR_PROJ, Reason.STRUCTURE, what)


def _anywhere(projection: Projection, module: torch.nn.Module) -> bool:
    """Whether a copy, which shares the weights alone, still multiplies rows that are far larger.

    Code that is not torch's own may clamp. Raises what the copy raises.
    """
    seen = projection.calls[0].input
    assert seen is not None
    memo: dict[int, object] = {id(p): p for p in module.parameters()}
    rows = seen.rows[:: max(1, len(seen.rows) - 1)]
    largest = rows.abs().amax().clamp_min(torch.finfo(rows.dtype).tiny)
    x, y = run(copy.deepcopy(module, memo), rows / largest * _LOUDER, seen.shape)
    return isinstance(y, torch.Tensor) and computes(projection, x, y)


def _seam(projection: Projection) -> Seam:
    weights = {"weight": projection.weight_key}
    if projection.bias_key:
        weights["bias"] = projection.bias_key
    return Seam(
        id=projection.path,
        structure=LINEAR_PROJ,
        members={"self": projection.path},
        variant={"bias": "present" if projection.bias_key else "none", "epilogue": "none"},
        dims={"K": projection.k, "N": projection.n},
        weights=weights,
        points={"x": Point(projection.path, "input")},
    )
