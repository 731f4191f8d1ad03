"""How a layer's q, k and v reach its attention call and leave it, followed value for value."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashrt.host.discovery.attention.heads import as_is, spread
from flashrt.host.discovery.attention.reach import reaches
from flashrt.host.discovery.attention.rotation import neighbours, pairs, turned, visible
from flashrt.host.discovery.attention.tap import Attended, Child, Site
from flashrt_runtime.reason import Because, Reason

if TYPE_CHECKING:
    import torch

_ARGUMENTS = (("q", "query"), ("k", "key"))
_UNTOLD = "no two tables that it was given turn its q and k into those that it attends with"

Modules = Mapping[str, "torch.nn.Module"]


@dataclass(frozen=True)
class Flow:
    """Head dim, how much of it is rotated, and the norms of q's and k's heads by role."""

    width: int
    rotated: int
    norms: Mapping[str, torch.nn.Module] = field(default_factory=dict)


def flow(
    site: Site, layer: Site, members: Modules, norms: Collection[torch.nn.Module]
) -> Flow | Because:
    """What lies between ``members`` q, k, v and o and the one attention call of ``site``.

    It is looked at whole: v as it is; q and k after a norm of ``norms`` at most, turned by halves
    by two tables that ``layer`` was given; each head of k and v repeated for its queries; and what
    was attended as o reads it.
    """
    if len(site.attended) != 1 or not site.attended[0].intact():
        return _no("it does not attend once, or its q, k and v were written after they attended")
    attended = site.attended[0]
    objection = attended.call.objection()
    if objection is not None:
        return objection
    calls = {role: _called(site, layer, module) for role, module in members.items()}
    made = {role: c.output.tensor for role, c in calls.items() if c is not None and c.output}
    if len(made) != len(members):
        return _no("its q, k, v and o are not each called once around its attention")
    if not _arrives(made["v"], site):
        return _no("the values that it attends with are not those that v put out")
    if not _left(calls["o"], site):
        return _no("o does not read what was attended as it is")
    through = {role: _normed(site, layer, calls[role], norms) for role in ("q", "k")}
    found = {role: norm for role, norm in through.items() if norm is not None}
    sources = {role: _source(found.get(role), made[role]) for role in ("q", "k")}
    return _turned(site, layer, sources, {r: norm.module for r, norm in found.items()})


def _no(what: str) -> Because:
    return Because(Reason.STRUCTURE, what)


def _source(norm: Child | None, made: torch.Tensor) -> torch.Tensor:
    return norm.output.tensor if norm is not None and norm.output is not None else made


def _told(layer: Site, attended: Attended, sources: Mapping[str, torch.Tensor]) -> Flow | Because:
    """What is known of a call of which too little is kept to say more."""
    positions, width = attended.call.query.shape[2], attended.call.query.shape[3]
    for tables in pairs(layer.given, positions, width):
        if all(reaches(attended, a, sources[r], tables) for r, a in _ARGUMENTS):
            return Flow(width, tables.width)
    return _no(_UNTOLD)


def _turned(
    site: Site, layer: Site, sources: Mapping[str, torch.Tensor], norms: Modules
) -> Flow | Because:
    attended, call = site.attended[0], site.attended[0].call
    if site.cut:  # all of it was looked at while it ran
        return _told(layer, attended, sources)
    positions, width = call.query.shape[2], call.query.shape[3]
    every = list(pairs(layer.given, positions, width))
    both = {role: spread(sources[role], getattr(call, name)) for role, name in _ARGUMENTS}
    for role, ways in both.items():
        if not ways:
            return _no(f"its {role} is not heads of {width}, each repeated for its queries")
    for tables in every:
        known = attended.turned
        if all(any(turned(known, a, b, tables, n) for a, b, n in ways) for ways in both.values()):
            if not any(visible(_repeated(*way), way[1]) for way in both["q"]):
                what = "its tables turn nothing in this frame, so how they turn was not seen"
                return Because(Reason.AMBIGUOUS, what)
            return Flow(width, tables.width, norms)
    queries = [(_repeated(*way), way[1]) for way in both["q"]]
    if any(neighbours(a, b) and not bool((a == b).all()) for a, b in queries):
        return _no("the rotation of its q pairs neighbouring elements, not halves")
    return _no(_UNTOLD)


def _repeated(own: torch.Tensor, _to: torch.Tensor, times: int) -> torch.Tensor:
    return own.repeat_interleave(times, dim=2) if times > 1 else own


def _arrives(value: torch.Tensor, site: Site) -> bool:
    attended = site.attended[0]
    if site.cut:
        return reaches(attended, "value", value)
    return as_is(value, attended.call.value)


def _left(out: Child | None, site: Site) -> bool:
    import torch

    attended = site.attended[0]
    read = out.input if out is not None else None
    if read is None or not read.intact() or read.tensor.numel() != attended.output.numel():
        return False
    want = attended.output.transpose(1, 2).flatten(2)
    return torch.equal(read.tensor.reshape(want.shape), want)


def _called(site: Site, layer: Site, module: torch.nn.Module) -> Child | None:
    """The one call of a module within the layer, made by the attending call or one around it."""
    calls = []
    for frame in site.frames():
        calls += [child for child in frame.children if child.module is module]
        if frame is layer:
            break
    return calls[0] if len(calls) == 1 else None


def _normed(
    site: Site, layer: Site, made: Child | None, norms: Collection[torch.nn.Module]
) -> Child | None:
    """The norm of ``norms`` that reads exactly what a projection put out, or ``None``."""
    import torch

    want = made.output.tensor if made is not None and made.output is not None else None
    for norm in norms:
        call = _called(site, layer, norm)
        read = call.input.tensor if call is not None and call.input is not None else None
        if want is None or read is None or read.numel() != want.numel():
            continue
        swaps = (read, read.transpose(1, 2)) if read.dim() == 4 else (read,)
        if any(torch.equal(r.reshape(want.shape), want) for r in swaps):
            return call
    return None
