"""Finds adaln_producer: a projection of a condition whose parts are the scales and shifts of norms.

The parts are recognised by their values: what a norm's output was multiplied by and what was added
to it. A table that the host adds afterwards stays in the host.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from flashrt.host.discovery.modulation import Site, sites
from flashrt.host.discovery.near_miss import ADALN_PRODUCER, Found, NearMiss
from flashrt.host.discovery.projection import Projection
from flashrt.host.discovery.sample import Observed
from flashrt.host.discovery.trace import Call
from flashrt.host.discovery.view import View
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason

_NEAR = 1e-3  # of the largest value: scales are solved from rows, not read


def find(view: View) -> Found:
    """adaln_producer seams, in the order in which their first reader was met."""
    found = Found()
    widths = {norm.d for norm in view.norms.values()}
    producers = [
        p
        for p in view.projections.values()
        if any(p.n % d == 0 and p.n >= 2 * d for d in widths)  # two parts as wide as some norm
    ]
    if not producers:
        return found
    seen: dict[str, int] = {}
    for site in sites(view, list(view.projections.values())):
        for producer in producers:
            if producer.path not in seen and _feeds(producer, site, view):
                seen[producer.path] = site.norm.d
                found.add(_judge(producer, site.norm.d, view))
    return found


def _parts(made: Observed, width: int) -> torch.Tensor | None:
    """The parts [B, 1 or r, P, D] of what a producer put out, in float64."""
    if made.width % width or made.width < 2 * width:
        return None
    kept = made.kept.double()
    if kept.dim() == 2:
        kept = kept[:, None]
    return kept.unflatten(-1, (-1, width)) if kept.dim() == 3 else None


def _feeds(producer: Projection, site: Site, view: View) -> bool:
    for call in producer.calls:
        if call.output is None or call.order > site.reader.calls[0].order:
            continue
        parts = _parts(call.output, site.norm.d)
        if parts is None:
            continue
        if _holds(parts, site):
            return True
        for table in _tables(site, parts.shape[-2], view):
            if _holds(parts + table, site):
                return True
    return False


def _holds(parts: torch.Tensor, site: Site) -> bool:
    """Whether one part is the site's scale and another its shift."""
    return _is_part(site.scale, parts) and _is_part(site.shift, parts)


def _is_part(value: torch.Tensor, parts: torch.Tensor) -> bool:
    each = parts.movedim(-2, 0)
    rows = each.shape[2] == 1 or each.shape[2] == value.shape[1]
    if not rows or each.shape[1] not in (1, value.shape[0]):
        return False
    off = (each - value).abs().flatten(1).amax(1)
    size = value.abs().amax().clamp_min(1e-6)
    return bool((off <= _NEAR * size).any())


def plainly(site: Site, view: View) -> bool:
    """Whether the factor itself, and not the factor less one, is part of what a projection made."""
    return _made(site.scale + 1.0, site, view) and not _made(site.scale, site, view)


def _made(value: torch.Tensor, site: Site, view: View) -> bool:
    for producer in view.projections.values():
        for call in producer.calls:
            if call.output is None or call.order > site.reader.calls[0].order:
                continue
            parts = _parts(call.output, site.norm.d)
            if parts is None:
                continue
            tables = _tables(site, parts.shape[-2], view)
            if _is_part(value, parts) or any(_is_part(value, parts + table) for table in tables):
                return True
    return False


def _tables(site: Site, count: int, view: View) -> Iterator[torch.Tensor]:
    """Parameters [P, D] of the modules around the norm, which the host may add to the parts."""
    names = site.norm.path.split(".")
    for depth in range(len(names) - 1, -1, -1):
        module = view.model.get_submodule(".".join(names[:depth]))
        for parameter in module._parameters.values():
            if parameter is not None and parameter.numel() == count * site.norm.d:
                yield parameter.detach().double().reshape(count, site.norm.d)


def _judge(producer: Projection, width: int, view: View) -> Seam | NearMiss:
    call = producer.calls[0]
    assert call.input is not None
    if not call.input.contiguous:
        what = "it reads a view that is not contiguous"
        return NearMiss.of(producer.path, ADALN_PRODUCER, Reason.LAYOUT, what)
    around = _with_silu(producer, view)
    member = around or producer.path
    weights = {"weight": producer.weight_key}
    if producer.bias_key:
        weights["bias"] = producer.bias_key
    return Seam(
        id=f"{member}.tables",
        structure=ADALN_PRODUCER,
        members={"self": member},
        variant={
            "activation": "silu" if around else "none",
            "bias": "present" if producer.bias_key else "none",
            "base": "none",
            "table_count": str(producer.n // width),
        },
        dims={"C": producer.k, "P": producer.n // width, "D": width},
        weights=weights,
    )


def _with_silu(producer: Projection, view: View) -> str:
    """The module around it that is SiLU and this projection alone, or an empty path."""
    path = producer.parent
    outers = view.seen.calls.get(path, []) if path else []
    whole = len(outers) == len(producer.calls) and all(
        _is_silu_then(outer, inner) for outer, inner in zip(outers, producer.calls, strict=True)
    )
    return path if whole else ""


def _is_silu_then(outer: Call, inner: Call) -> bool:
    x, read = outer.input, inner.input
    if x is None or read is None or not outer.plain or outer.output is None:
        return False
    if not outer.output.alike(inner.output) or x.kept.shape != read.kept.shape:
        return False
    want = torch.nn.functional.silu(x.kept)
    near = 8 * torch.finfo(read.dtype).eps * (want.abs() + 1e-3)
    return bool(((want - read.kept).abs() <= near).all())
