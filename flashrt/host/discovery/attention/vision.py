"""Finds qkv_rope: one packed projection cut into q, k and v, of which q and k are rotated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashrt.host.discovery.attention.result import NOTHING, QKV_ROPE, Found, miss, named
from flashrt.host.discovery.attention.rotation import Tables, neighbours, pairs, tensors, turns
from flashrt.host.discovery.attention.tap import Child, Site
from flashrt_runtime.adapters import refuse
from flashrt_runtime.adapters.plan import Argument, VisionPlan
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason

if TYPE_CHECKING:
    import torch

_MOST = 256


def find_vision(path: str, sites: Sequence[Site]) -> Found:
    """The qkv_rope of one module over every call of it, a near miss, or nothing."""
    site = sites[0]
    packed = _packed(site)
    if packed is None:
        return NOTHING
    child, rows = packed
    found = _judge(site, child, rows)
    parallel = refuse.context_parallel(site.module)
    counts = {rows.shape[0]} | {p[1].shape[0] for s in sites[1:] if (p := _packed(s))}
    if parallel is not None:
        found = parallel
    elif len(counts) > 1:
        found = Because(Reason.SHAPE, f"it was called with {sorted(counts)} tokens, not one number")
    if found is None:
        return NOTHING
    if isinstance(found, Because):
        return miss(path, QKV_ROPE, found.reason, found.detail)
    heads, size = rows.shape[2:]
    bias = getattr(child.module, "bias", None) is not None
    seam = Seam(
        id=named(path, "qkv_rope"),
        structure=QKV_ROPE,
        members={"self": path},
        variant={"bias": "present" if bias else "none"},
        dims={"H": heads, "Dh": size},
        weights={"bias": f"{child.path}.bias"} if bias else {},
    )
    plan = _plan(site, child, found, rows)
    return Found(seams=(seam,), plans={seam.id: plan} if plan else {})


def _joined(site: Site, name: str) -> torch.Tensor | None:
    """q, k or v of every call of the site, joined along the tokens: [M, H, D]."""
    import torch

    parts = [getattr(a.call, name) for a in site.attended]
    if not parts or any(p.dim() != 4 or p.shape[0] != 1 for p in parts):
        return None
    if any(p.shape[1] != parts[0].shape[1] or p.shape[3] != parts[0].shape[3] for p in parts):
        return None
    joined = [p[0].transpose(0, 1) for p in parts]
    return joined[0] if len(joined) == 1 else torch.cat(joined)


def _packed(site: Site) -> tuple[Child, torch.Tensor] | None:
    """The child whose output holds q, k and v side by side, and that output [M, 3, H, D]."""
    import torch

    shapes = [(a.call.query.shape, a.call.value.shape) for a in site.attended]
    if any(len(q) != 4 or len(v) != 4 for q, v in shapes):
        return None
    (queries, values), tokens = shapes[0], sum(value[2] for _, value in shapes)
    count, width = queries[1] + 2 * values[1], values[3]
    wide = [
        (child, child.output.tensor)
        for child in site.children
        if child.output is not None and child.output.tensor.shape[-1] % width == 0
        if child.output.tensor.numel() == tokens * count * width
    ]
    v, q = (_joined(site, "value"), _joined(site, "query")) if wide else (None, None)
    if v is None or q is None or any(not a.intact() for a in site.attended):
        return None
    for child, out in wide:
        rows = out.reshape(-1, out.shape[-1] // width, width)
        if rows.shape[:2] != (v.shape[0], count):
            continue
        if torch.equal(rows[:, -v.shape[1] :], v):
            if q.shape[1] == v.shape[1]:
                return child, rows.unflatten(1, (3, v.shape[1]))
            return child, rows[:, None]
    return None


def _judge(site: Site, child: Child, rows: torch.Tensor) -> Tables | Because | None:
    """The tables that rotate q and k, why the pack is not the structure's, or ``None``."""
    import torch

    size = rows.shape[3]
    q, k = _joined(site, "query"), _joined(site, "key")
    if q is None or k is None:
        return None
    if rows.shape[1] == 3 and torch.equal(rows[:, 0], q):
        return None  # packed, and not rotated: nothing of this structure is here
    if rows.shape[1] != 3:
        return Because(Reason.LAYOUT, "its packed projection has unequal heads for q and for k, v")
    if size % 2 or size > _MOST:
        return Because(Reason.SHAPE, f"its head dim {size} is not even and at most {_MOST}")
    return _tables(site, rows, q, k)


def _tables(site: Site, rows: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> Tables | Because:
    size = rows.shape[3]
    for tables in pairs(site.given, rows.shape[0], size):
        if turns(rows[None, :, 0], q[None], tables) and turns(rows[None, :, 1], k[None], tables):
            return _whole(tables, size)
    if neighbours(rows[:, 0], q):
        return Because(Reason.STRUCTURE, "the rotation of its q pairs neighbouring elements")
    what = "no two tables given to it turn its packed q and k into those that it attends with"
    return Because(Reason.STRUCTURE, what)


def _whole(tables: Tables, size: int) -> Tables | Because:
    import torch

    if tables.width != size:
        what = f"its table rotates {tables.width} of a head's {size}"
        return Because(Reason.SHAPE, what)
    if tables.cos.dtype != torch.float32:
        return Because(Reason.DTYPE, f"its rotate-half table is {tables.cos.dtype}, not float32")
    return tables


def _plan(site: Site, child: Child, tables: Tables, rows: torch.Tensor) -> VisionPlan | None:
    after = [c for c in site.children if c is not child]
    x = _argument(site, child.input.tensor if child.input else None)
    if x is None or not after or any(len(at.take(site.given).shape) != 2 for at in tables.at):
        return None
    return VisionPlan(
        qkv=site.relative(child),
        out=site.relative(after[-1]),
        x=x,
        cos=tables.at[0],
        sin=tables.at[1],
        heads=(int(rows.shape[2]), int(rows.shape[3])),
        capacity=int(rows.shape[0]),
        lengths=_lengths(site),
    )


def _argument(site: Site, tensor: torch.Tensor | None) -> Argument | None:
    return next((at for at, given in tensors(site.given) if given is tensor), None)


def _lengths(site: Site) -> Argument | None:
    """The argument whose differences are the tokens of each call, where there is one."""
    want = [a.call.query.shape[2] for a in site.attended]
    for at, given in tensors(site.given):
        whole = given.dim() == 1 and not given.is_floating_point() and len(given) == len(want) + 1
        if whole and given.diff().tolist() == want:
            return at
    return None
