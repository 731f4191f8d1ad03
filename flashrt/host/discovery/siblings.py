"""Finds qkv_pack: three sibling projections seen to read one tensor, always in one order."""

from __future__ import annotations

from collections.abc import Sequence

from flashrt.host.discovery.attention.roles import roles as attended_roles
from flashrt.host.discovery.near_miss import QKV_PACK, Found, NearMiss
from flashrt.host.discovery.projection import Projection
from flashrt.host.discovery.view import View
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason


def find(view: View, taken: set[str]) -> Found:
    """qkv_pack seams and near misses among projections that no feed-forward has ``taken``."""
    children: dict[str, list[Projection]] = {}
    for projection in view.projections.values():
        if projection.path not in taken:
            children.setdefault(projection.parent, []).append(projection)
    found = Found()
    for parent, siblings in children.items():
        found.add(_judge(parent, siblings, view))
    return found


def _judge(parent: str, siblings: list[Projection], view: View) -> Seam | NearMiss | None:
    group = max(_by_input(siblings), key=len)
    objection = _objection(siblings, group, view)
    if objection is not None:
        return NearMiss.of(parent, QKV_PACK, *objection)
    if len(group) != 3:
        return None
    roles = roles_of(group, view)
    if roles is None:
        what = "which of them are q, k and v was not seen: no attention call was traced to them"
        return NearMiss.of(parent, QKV_PACK, Reason.AMBIGUOUS, what)
    return _seam(parent, roles, group[0].path)


def _objection(
    siblings: list[Projection], group: list[Projection], view: View
) -> tuple[Reason, str] | None:
    """Why these siblings are nearly q, k and v; ``None`` when they are, or are nothing like it."""
    alike = [s for s in siblings if s.k == siblings[0].k]
    found: tuple[Reason, str] | None = None
    if len(group) < 3:
        if len(alike) >= 3:
            names = ", ".join(s.path.rpartition(".")[2] for s in group)
            seen = f"only {names} read one tensor" if len(group) == 2 else "no two read one tensor"
            what = f"{len(alike)} siblings have one width in, but {seen}"
            found = (Reason.SHARED_INPUT, what)
    elif len(group) > 3:
        what = f"{len(group)} siblings read one tensor; which are q, k and v was not observed"
        found = (Reason.AMBIGUOUS, what)
    elif not _widths_fit(group):
        widths = ", ".join(str(p.n) for p in group)
        found = (Reason.STRUCTURE, f"widths {widths} are not those of q, k and v")
    elif not fixed_order(paths := [p.path for p in group], view.order_of(paths)):
        what = "the order in which they were called changed between calls"
        found = (Reason.SHARED_INPUT, what)
    elif len({bool(p.bias_key) for p in group}) == 2:
        found = (Reason.LAYOUT, "only some of q, k and v have a bias")
    return found


def _by_input(siblings: list[Projection]) -> list[list[Projection]]:
    """Siblings grouped by the tensor they read in every call."""
    groups: dict[tuple[int, ...], list[Projection]] = {}
    for sibling in siblings:
        groups.setdefault(sibling.reads, []).append(sibling)
    return list(groups.values())


def _widths_fit(group: list[Projection]) -> bool:
    """Whether two are equally wide and the third is a whole number of times as wide."""
    low, middle, high = sorted(p.n for p in group)
    return low == middle and high % low == 0


def roles_of(group: list[Projection], view: View) -> dict[str, Projection] | None:
    """q, k and v of three siblings, in call order: by the argument of attention that each reaches.

    ``None`` where that was not seen, or where their widths are not those of q, k and v.
    """
    key = ("roles", *(p.path for p in group))
    return view.once(key, lambda: _roles_of(group, view))


def _roles_of(group: list[Projection], view: View) -> dict[str, Projection] | None:
    modules = [view.module(p.path) for p in group]
    near = [sites for sites in map(view.sites_around, modules) if sites]
    told = attended_roles(min(near, key=len), modules) if len(near) == len(modules) else None
    if told is None:
        return None
    q, k, v = (group[one] for one in told)
    if k.n != v.n or q.n % k.n:
        return None
    by_role = {"q": q, "k": k, "v": v}
    return dict(sorted(by_role.items(), key=lambda item: item[1].calls[0].order))


def fixed_order(paths: Sequence[str], sequence: Sequence[str]) -> bool:
    """Whether every run of these modules' calls has this one order. ``sequence`` is all calls."""
    members = set(paths)
    calls = [path for path in sequence if path in members]
    return bool(calls) and calls == list(paths) * (len(calls) // len(paths))


def _seam(parent: str, roles: dict[str, Projection], first: str) -> Seam:
    weights = {role: p.weight_key for role, p in roles.items()}
    weights |= {f"{role}_bias": p.bias_key for role, p in roles.items() if p.bias_key}
    dims = {"D": roles["q"].k} | {f"N{role}": p.n for role, p in roles.items()}
    return Seam(
        id=f"{parent}.qkv" if parent else "qkv",
        structure=QKV_PACK,
        members={role: p.path for role, p in roles.items()},
        variant={"bias": "present" if roles["q"].bias_key else "none"},
        dims=dims,
        weights=weights,
        points={"x": Point(first, "input")},
    )
