"""Finds qk_norm_rope: queries and keys that are normed, rotated by halves, and attended with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flashrt.host.discovery.attention.heads import layouts, made, producer
from flashrt.host.discovery.attention.normed import Rotated, rotated_from
from flashrt.host.discovery.attention.norms import RmsNorm, recognise, vector_of
from flashrt.host.discovery.attention.reach import reaches
from flashrt.host.discovery.attention.result import NOTHING, QK_NORM_ROPE, Found, miss, named
from flashrt.host.discovery.attention.rotation import neighbours, pairs, turned
from flashrt.host.discovery.attention.tap import Attended, Child, Site
from flashrt_runtime.adapters import refuse
from flashrt_runtime.adapters.plan import Argument, RopeCall, SequencePlan
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason

_MOST = 256


@dataclass(frozen=True)
class Trio:
    """q and k as they were normed and rotated, and the child that projected v."""

    q: Rotated
    k: Rotated
    v: Child


def find_sequence(site: Site) -> Found:
    """The qk_norm_rope of one site, a near miss, or nothing where q and k are neither."""
    norms = [n for n in map(recognise, site.children) if n is not None]
    found: Trio | Because | None = None
    for attended in site.attended:
        found = trio(site, norms, attended)
        if isinstance(found, Trio):
            break
    if found is None:
        found = _nearly(site, norms)
    if found is None:
        return NOTHING
    parallel = refuse.context_parallel(site.module)
    if parallel is not None:
        found = parallel
    if isinstance(found, Because):
        return miss(site.path, QK_NORM_ROPE, found.reason, found.detail)
    made_seam = seam(site.path, found)
    if isinstance(made_seam, Because):
        return miss(site.path, QK_NORM_ROPE, made_seam.reason, made_seam.detail)
    plan = _plan(site, found)
    return Found(seams=(made_seam,), plans={made_seam.id: plan} if plan else {})


def trio(site: Site, norms: Sequence[RmsNorm], attended: Attended) -> Trio | Because | None:
    """What one attention call's q, k and v came from, or why that is nearly the structure."""
    if attended.call.objection() is not None or not attended.intact():
        return None
    positions = attended.call.query.shape[2]
    q = rotated_from(norms, attended, "query", site.given, positions)
    if not isinstance(q, Rotated):
        return q
    others = [n for n in norms if n.child is not q.norm.child]
    k = rotated_from(others, attended, "key", site.given, positions)
    if not isinstance(k, Rotated):
        return k or Because(
            Reason.STRUCTURE, "its q is normed and rotated, its k is not seen to be"
        )
    if _tables(q) != _tables(k):
        return Because(Reason.SHARED_INPUT, "q and k are rotated by different tables")
    v = producer(site, made(attended, "value", k.heads, positions), k.heads)
    return Trio(q, k, v) if v else Because(Reason.STRUCTURE, "its v is not what one child put out")


def _tables(x: Rotated) -> tuple[Argument, Argument]:
    return x.tables.at


def seam(path: str, found: Trio, rest: str = "qk_norm_rope") -> Seam | Because:
    """The seam below ``path``, or why the pair is not the structure's."""
    q, k = found.q, found.k
    size, width = q.before.shape[3], q.tables.width
    wide = q.norm.width != size
    both = [fit for fit in q.norm.fits if fit in k.norm.fits]
    if not q.norm.fits or not k.norm.fits or len(both) > 1:
        shown = ", ".join(f"{eps:g}" for _, eps in both) or "none of those tried"
        return Because(Reason.AMBIGUOUS, f"the eps of its norms cannot be told (fits: {shown})")
    if not both or wide != (k.norm.width != size):
        return Because(Reason.STRUCTURE, "q and k are normed in different ways")
    if size % 2 or size > _MOST:
        return Because(Reason.SHAPE, f"its head dim {size} is not even and at most {_MOST}")
    if q.heads % k.heads:
        what = f"{q.heads} query heads are no multiple of {k.heads} key heads"
        return Because(Reason.SHAPE, what)
    suffix = "_norm_wide" if wide else "_norm"
    variant = {
        "norm": "projection" if wide else "per_head",
        "gain": both[0][0],
        "eps": repr(both[0][1]),
    }
    if wide:
        variant["head_dim"] = str(size)
    return Seam(
        id=named(path, rest),
        structure=QK_NORM_ROPE,
        members={"self": path},
        variant=variant,
        dims={"Hq": q.heads, "Hkv": k.heads, "G": q.heads // k.heads, "Dh": size, "R": width},
        weights={
            role + suffix: f"{x.norm.child.path}.{x.norm.weight}"
            for role, x in (("q", q), ("k", k))
        },
    )


def _nearly(site: Site, norms: Sequence[RmsNorm]) -> Because | None:
    """Why a site whose q and k were not traced back is nearly the structure, or ``None``."""
    for attended in site.attended:
        query = attended.call.query
        heads, size = query.shape[1], query.shape[3]
        if size % 2 and norms:
            return Because(Reason.SHAPE, f"its head dim {size} is odd: it has no halves")
        for child in site.children:
            found = _child(site, child, attended)
            if found is not None:
                return found
        fed = [n for n in norms if n.width in (size, heads * size)]
        made_by = [n.child.output.tensor for n in fed if n.child.output]
        if made_by and all(tensor.numel() < query.numel() for tensor in made_by):
            what = "its q joins the rows of several projections"
            return Because(Reason.LAYOUT, what)
        if fed:
            what = "no two tables given to it turn its normed q into the q that it attends with"
            return Because(Reason.STRUCTURE, what)
    return None


def _child(site: Site, child: Child, attended: Attended) -> Because | None:
    """What a child with q's own size says: a norm of another width, or a bare rotation."""
    call = attended.call
    heads, positions, size = call.query.shape[1:]
    held = vector_of(child.module)
    fits = child.output is not None and child.output.tensor.numel() == call.query.numel()
    if child.output is None or not fits or (held and held[1].shape[0] in (size, heads * size)):
        return None
    if held is not None:
        what = f"a norm spans {held[1].shape[0]} elements; a head has {size}, q {heads * size}"
        return Because(Reason.SHAPE, what)
    source, known = child.output.tensor, attended.turned
    every = list(pairs(site.given, positions, size))
    halves, ways = any(reaches(attended, "query", source, tables) for tables in every), []
    if not halves and not site.cut:
        query = made(attended, "query")
        ways = [(x, query) for x in layouts(source, heads, size) if x.shape == query.shape]
        halves = any(turned(known, *way, tables) for way in ways for tables in every)
    if halves:
        what = "its q is rotated by halves without a norm before"
        return Because(Reason.STRUCTURE, what)
    if any(neighbours(*way) and not bool((way[0] == way[1]).all()) for way in ways):
        what = "its q is rotated without a norm, and by neighbouring elements"
        return Because(Reason.STRUCTURE, what)
    return None


def _plan(site: Site, found: Trio) -> SequencePlan | None:
    """The adapter's plan, where the rotation is a callable slot and the norms are own children."""
    q_norm, k_norm, v = (
        site.relative(x) for x in (found.q.norm.child, found.k.norm.child, found.v)
    )
    if "." in q_norm + k_norm + v:
        return None
    for call in site.slots:
        tensors = {id(value): name for name, value in call.given.items()}
        cos, sin = (tensors.get(id(at.take(site.given)), "") for at in found.q.tables.at)
        q = _parameter(call.given, found.q.before)
        k = _parameter(call.given, found.k.before)
        if cos and sin and q and k:
            first = call.given[q].shape == found.q.before.transpose(1, 2).shape
            same = call.given[q].shape == found.q.before.shape
            rope = RopeCall(
                call.slot.name, call.slot.place, q, k, cos, sin, heads_first=first and not same
            )
            return SequencePlan(q_norm, k_norm, v, rope)
    return None


def _parameter(given: dict[str, object], want: object) -> str:
    """The argument that holds these values, in either order of heads and positions."""
    import torch

    for name, value in given.items():
        if not isinstance(value, torch.Tensor) or not isinstance(want, torch.Tensor):
            continue
        for reading in (value, value.transpose(1, 2) if value.dim() == 4 else value):
            if reading.shape == want.shape and torch.equal(reading, want):
                return name
    return ""
