"""Finds qkv_pack: three sibling projections seen to read one tensor, always in one order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flashrt.host.near_miss import QKV_PACK, NearMiss
from flashrt.host.projection import Projection
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason


def find_qkv(
    projections: Mapping[str, Projection], taken: set[str], sequences: Sequence[Sequence[str]]
) -> tuple[list[Seam], list[NearMiss]]:
    """qkv_pack seams and near misses among projections that no feed-forward has ``taken``.

    ``sequences`` are the orders in which modules were called in each observed forward.
    """
    children: dict[str, list[Projection]] = {}
    for projection in projections.values():
        if projection.path not in taken:
            children.setdefault(projection.parent, []).append(projection)
    seams, missed = [], []
    for parent, siblings in children.items():
        result = _judge(parent, siblings, sequences)
        if isinstance(result, Seam):
            seams.append(result)
        elif result is not None:
            missed.append(result)
    return seams, missed


def _judge(
    parent: str, siblings: list[Projection], sequences: Sequence[Sequence[str]]
) -> Seam | NearMiss | None:
    group = max(_by_input(siblings), key=len)
    objection = _objection(siblings, group, sequences)
    if objection is not None:
        return NearMiss.of(parent, QKV_PACK, *objection)
    roles = _roles(group) if len(group) == 3 else None
    return _seam(parent, roles, group[0].path) if roles else None


def _objection(
    siblings: list[Projection], group: list[Projection], sequences: Sequence[Sequence[str]]
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
    elif _roles(group) is None:
        widths = ", ".join(str(p.n) for p in group)
        found = (Reason.STRUCTURE, f"widths {widths} are not those of q, k and v")
    elif not _fixed_order([p.path for p in group], sequences):
        what = "the order in which they were called changed between calls"
        found = (Reason.SHARED_INPUT, what)
    elif len({bool(p.bias_key) for p in group}) == 2:
        found = (Reason.LAYOUT, "only some of q, k and v have a bias")
    return found


def _by_input(siblings: list[Projection]) -> list[list[Projection]]:
    """Siblings grouped by the tensor they read in every call."""
    groups: list[list[Projection]] = []
    for sibling in siblings:
        for group in groups:
            pairs = list(zip(group[0].calls, sibling.calls, strict=False))
            if len(group[0].calls) == len(sibling.calls) and all(
                a.input is not None and b.input is not None and a.input.same(b.input)
                for a, b in pairs
            ):
                group.append(sibling)
                break
        else:
            groups.append([sibling])
    return groups


def _roles(group: list[Projection]) -> dict[str, Projection] | None:
    """q is the widest and k and v are equally wide; between equals the call order decides."""
    widest = max(p.n for p in group)
    q = next(p for p in group if p.n == widest)
    k, v = (p for p in group if p is not q)
    if k.n != v.n or q.n % k.n:
        return None
    by_role = {"q": q, "k": k, "v": v}
    return dict(sorted(by_role.items(), key=lambda item: item[1].calls[0].order))


def _fixed_order(paths: list[str], sequences: Sequence[Sequence[str]]) -> bool:
    """Whether every run of these modules' calls, in every forward, has this one order."""
    members = set(paths)
    for sequence in sequences:
        calls = [path for path in sequence if path in members]
        if not calls or calls != paths * (len(calls) // len(paths)):
            return False
    return True


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
