"""Finds attention_core: calls of scaled_dot_product_attention made by a module's own forward."""

from __future__ import annotations

from collections.abc import Sequence

from flashrt.host.discovery.attention.result import ATTENTION_CORE, Found, miss, named
from flashrt.host.discovery.attention.tap import Attended, Site
from flashrt_runtime.adapters import mask as masks
from flashrt_runtime.adapters import refuse
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason

Masks = dict[tuple[int, bool, int, int], masks.Mask | Because]  # by the mask's id, and its sizes
Way = tuple[dict[str, str], dict[str, int]]


def find_core(path: str, sites: Sequence[Site], known: Masks | None = None) -> Found:
    """The attention calls of one module over the whole forward.

    Calls that agree are one seam; a module that attends in several ways has one seam for each, in
    call order. A call that no structure says refuses the module: its body could not serve it.
    ``known`` is what was read of the masks of this forward.
    """
    known = {} if known is None else known
    parallel = refuse.context_parallel(sites[0].module)
    if parallel is not None:
        return miss(path, ATTENTION_CORE, parallel.reason, parallel.detail)
    calls = [attended for site in sites for attended in site.attended]
    ways: list[Way] = []
    # One query that sees every key is the last row of a causal call: those are placed last.
    for attended in sorted(calls, key=lambda a: a.call.query.shape[-2] == 1):
        way = _way(attended, known)
        if isinstance(way, Because):
            return miss(path, ATTENTION_CORE, way.reason, way.detail)
        last = attended.call.query.shape[2] == 1 and way[0]["mask"] == masks.NONE
        causal = ({**way[0], "mask": masks.CAUSAL}, way[1])
        if way not in ways and not (last and causal in ways):
            ways.append(way)
    alone = len(ways) == 1
    seams = [
        Seam(
            id=named(path, "attention_core" if alone else f"attention_core.{i}"),
            structure=ATTENTION_CORE,
            members={"self": path},
            variant=variant,
            dims=dims,
            weights={},
        )
        for i, (variant, dims) in enumerate(ways)
    ]
    return Found(seams=tuple(seams))


def _way(attended: Attended, known: Masks) -> Way | Because:
    """Variant and dims of one call, or why it is none of the structure's."""
    call = attended.call
    objection = call.objection()
    if objection is not None:
        return objection
    if not attended.intact():
        return Because(Reason.LAYOUT, "q, k or v was written in place after it attended")
    seen = id(call.attn_mask), call.is_causal, call.query.shape[2], call.key.shape[2]
    if seen not in known:
        known[seen] = call.mask()
    mask = known[seen]
    if isinstance(mask, Because):
        return mask
    query, key = call.query.shape[1], call.key.shape[1]
    variant = {"mask": mask.kind, "scaling": "inverse_sqrt"}
    if not call.scaled_as(None):
        variant |= {"scaling": "given", "scale": repr(float(call.scale or 0.0))}
    dims = {
        "Hq": query,
        "Hkv": key,
        "G": query // key,
        "Dh": call.query.shape[3],
        "Dv": call.value.shape[3],
    }
    return variant, dims
