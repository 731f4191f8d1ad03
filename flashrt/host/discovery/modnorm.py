"""Finds modnorm_qkv_chain: LayerNorm(x)·(1 + scale) + shift, read by q, or by q, k and v."""

from __future__ import annotations

from functools import partial

from flashrt.host.discovery.adaln import plainly
from flashrt.host.discovery.modulation import Between, Site, site_of
from flashrt.host.discovery.near_miss import MODNORM_QKV_CHAIN, Found, NearMiss
from flashrt.host.discovery.projection import Projection
from flashrt.host.discovery.siblings import roles_of
from flashrt.host.discovery.view import View
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason


def find(view: View, taken: set[str]) -> Found:
    """Chains whose projections are siblings that no feed-forward has ``taken``."""
    children: dict[str, list[Projection]] = {}
    for projection in view.projections.values():
        if projection.path not in taken:
            children.setdefault(projection.parent, []).append(projection)
    found = Found()
    for parent, siblings in children.items():
        roles = _roles(siblings, view)
        if roles is not None:
            found.look(parent, MODNORM_QKV_CHAIN, partial(_judge, parent, roles, view))
    return found


def _roles(siblings: list[Projection], view: View) -> dict[str, Projection] | None:
    """q, k and v that read one tensor; or q alone, where k and v read another together."""
    groups: dict[tuple[int, ...], list[Projection]] = {}
    for sibling in siblings:
        groups.setdefault(sibling.reads, []).append(sibling)
    for group in groups.values():
        if len(group) == 3 and (roles := roles_of(group, view)) is not None:
            return roles
    ordered = list(groups.values())
    for i, group in enumerate(ordered[:-1]):
        others = [pair for pair in ordered if len(pair) == 2 and pair[0].n == pair[1].n]
        if len(group) == 1 and i == 0 and others and group[0].n % others[0][0].n == 0:
            return {"q": group[0]}
    return None


def _judge(parent: str, roles: dict[str, Projection], view: View) -> Seam | NearMiss | None:
    site = site_of(roles["q"], view)
    if site is None:
        return None
    objection: tuple[Reason, str] | None = None
    if isinstance(site, Between):
        what = f"{site.path} stands between the norm {site.norm.path} and the projections"
        objection = (Reason.STRUCTURE, what)
    elif not site.norm.kind.startswith("layer"):
        what = f"the modulated norm {site.norm.path} is {site.norm.kind}, not a LayerNorm"
        objection = (Reason.STRUCTURE, what)
    elif plainly(site, view):
        what = "its norm is multiplied by a projection's own numbers, not by one plus them"
        objection = (Reason.STRUCTURE, what)
    elif len({bool(p.bias_key) for p in roles.values()}) == 2:
        objection = (Reason.LAYOUT, "only some of q, k and v have a bias")
    elif not all(c.input and c.input.contiguous for p in roles.values() for c in p.calls):
        objection = (Reason.LAYOUT, "the projections read a view that is not contiguous")
    if objection is not None:
        return NearMiss.of(parent, MODNORM_QKV_CHAIN, *objection)
    assert isinstance(site, Site)
    return _seam(parent, roles, site)


def _seam(parent: str, roles: dict[str, Projection], site: Site) -> Seam:
    norm = site.norm
    bias = bool(roles["q"].bias_key)
    weights = {role: p.weight_key for role, p in roles.items()}
    weights |= {f"{role}_bias": p.bias_key for role, p in roles.items() if p.bias_key}
    slots = {"weight": "norm", "bias": "norm_bias"}
    weights |= {slots[slot]: key for slot, key in norm.weights.items()}
    return Seam(
        id=f"{parent}.modnorm" if parent else "modnorm",
        structure=MODNORM_QKV_CHAIN,
        members={"norm": norm.path} | {role: p.path for role, p in roles.items()},
        variant={
            **norm.variant,
            "attention": "self" if "k" in roles else "cross",
            "bias": "present" if bias else "none",
        },
        dims={"D": norm.d} | {f"N{role}": p.n for role, p in roles.items()},
        weights=weights,
        points={"x_after_modulation": Point(next(iter(roles.values())).path, "input")},
    )
