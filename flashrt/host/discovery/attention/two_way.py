"""Finds two-way attention: a causal pack, and a pack that sees both, projected apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashrt.host.discovery.attention.heads import layouts, made, producer
from flashrt.host.discovery.attention.norms import recognise
from flashrt.host.discovery.attention.result import NOTHING, QK_NORM_ROPE, Found, miss, named
from flashrt.host.discovery.attention.rotation import tensors
from flashrt.host.discovery.attention.sequence import Trio, seam, trio
from flashrt.host.discovery.attention.tap import Attended, Child, Site
from flashrt_runtime.adapters import refuse
from flashrt_runtime.adapters.plan import Group, TwoWayPlan
from flashrt_runtime.reason import Because, Reason

if TYPE_CHECKING:
    import torch


def packs(site: Site) -> tuple[Attended, Attended] | None:
    """The causal call and the full one, when the site attended in just these two ways."""
    if len(site.attended) != 2 or any(a.call.objection() for a in site.attended):
        return None
    causal = [a for a in site.attended if a.call.is_causal and a.call.attn_mask is None]
    full = [a for a in site.attended if not a.call.is_causal and a.call.attn_mask is None]
    if len(causal) != 1 or len(full) != 1:
        return None
    both = causal[0].call.query.shape[2] + full[0].call.query.shape[2]
    return (causal[0], full[0]) if full[0].call.key.shape[2] == both else None


def find_two_way(site: Site) -> Found:
    """Two qk_norm_rope seams and one plan for both, a near miss, or nothing."""
    calls = packs(site)
    if calls is None:
        return NOTHING
    found = (
        refuse.context_parallel(site.module)
        or refuse.neighbourhood({**vars(site.module), **site.given})
        or refuse.mutating_cache(site.given)
        or _pair(site, calls)
    )
    if isinstance(found, Because):
        return miss(site.path, QK_NORM_ROPE, found.reason, found.detail)
    trios, plan = found
    seams = []
    for trio_, rest in zip(trios, ("causal", "full"), strict=True):
        one = seam(site.path, trio_, f"{rest}.qk_norm_rope")
        if isinstance(one, Because):
            return miss(site.path, QK_NORM_ROPE, one.reason, one.detail)
        seams.append(one)
    return Found(seams=tuple(seams), plans={named(site.path, "two_way"): plan})


def _pair(
    site: Site, calls: tuple[Attended, Attended]
) -> tuple[tuple[Trio, Trio], TwoWayPlan] | Because:
    norms = [n for n in map(recognise, site.children) if n is not None]
    trios, groups = [], []
    for attended, name in zip(calls, ("causal", "full"), strict=True):
        found = trio(site, norms, attended)
        if not isinstance(found, Trio):
            why = found.detail if found else "it has no norms of q and k of its own"
            what = f"an incomplete pair: in its {name} pack {why}"
            return Because(Reason.STRUCTURE, what)
        group = _group(site, found, attended)
        if isinstance(group, Because):
            return group
        trios.append(found)
        groups.append(group)
    shared = _shares(calls, trios[0])
    if shared is not None:
        return shared
    first = _first(site, groups)
    if first is None:
        what = "it does not return its two packs' output projections and nothing else"
        return Because(Reason.LAYOUT, what)
    q, k = trios[0].q, trios[0].k
    heads = (q.heads, k.heads, int(q.before.shape[3]))
    return (trios[0], trios[1]), TwoWayPlan(groups[0], groups[1], heads, first)


def _shares(calls: tuple[Attended, Attended], causal: Trio) -> Because | None:
    """Why the full pack does not read exactly what the causal pack made, or ``None``."""
    import torch

    positions = calls[0].call.query.shape[2]
    for name in ("key", "value"):
        own = made(calls[0], name, causal.k.heads)
        seen = made(calls[1], name, causal.k.heads)[:, :positions]
        if own.shape != seen.shape or not torch.equal(own, seen):
            what = f"its full pack does not read the causal pack's {name}s, first and as they are"
            return Because(Reason.SHARED_INPUT, what)
    return None


def _group(site: Site, found: Trio, attended: Attended) -> Group | Because:
    children: dict[str, Child] = {"v": found.v}
    for role, x in (("q", found.q), ("k", found.k)):
        read = x.norm.child.input
        wide = layouts(read.tensor, x.heads, x.before.shape[3]) if read else []
        maker = next((p for w in wide if (p := producer(site, w, x.heads))), None)
        if maker is None:
            return Because(Reason.STRUCTURE, f"its {role} is not what one projection put out")
        children[role] = maker
    out = _reader(site, attended)
    if out is None:
        return Because(Reason.STRUCTURE, "no projection reads what it attended to")
    children["out"] = out
    read_by = [c.input.tensor for r, c in children.items() if r != "out" and c.input is not None]
    at = next((a for a, t in tensors(site.given) if t is read_by[0]), None)
    if at is None or any(tensor is not read_by[0] for tensor in read_by):
        return Because(Reason.SHARED_INPUT, "its q, k and v do not read one tensor that is given")
    cos, sin = found.q.tables.at
    paths = {role: site.relative(child) for role, child in children.items()}
    return Group(**paths, x=at, cos=cos, sin=sin)


def _reader(site: Site, attended: Attended) -> Child | None:
    """The child that reads what the call returned, heads joined."""
    import torch

    want: torch.Tensor = attended.output.transpose(1, 2).flatten(2)
    for child in site.children:
        read = child.input.tensor if child.input is not None else None
        whole = read is not None and read.numel() == want.numel()
        if read is not None and whole and torch.equal(read.reshape(want.shape), want):
            return child
    return None


def _first(site: Site, groups: list[Group]) -> bool | None:
    """Whether forward returns the causal pack's result first; ``None`` when it is another thing."""
    made_by = {site.relative(c): c.output.tensor for c in site.children if c.output is not None}
    outs = [made_by.get(group.out) for group in groups]
    if not isinstance(site.output, tuple) or len(site.output) != 2:
        return None
    if all(a is b for a, b in zip(site.output, outs, strict=True)):
        return True
    if all(a is b for a, b in zip(site.output, reversed(outs), strict=True)):
        return False
    return None
