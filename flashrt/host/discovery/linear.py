"""Finds linear_proj: every projection that no feed-forward has taken."""

from __future__ import annotations

from flashrt.host.discovery.near_miss import LINEAR_PROJ, Found
from flashrt.host.discovery.projection import Projection
from flashrt.host.discovery.view import View
from flashrt_runtime.contract import Point, Seam


def find(view: View, taken: set[str]) -> Found:
    """linear_proj seams. What only looks like one was said when projections were read."""
    return Found([_seam(p) for p in view.projections.values() if p.path not in taken])


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
