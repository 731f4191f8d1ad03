"""Finds attention regions by the calls, projections, norms and tables that one forward showed.

``AttentionTap(model)`` is entered during discovery's one forward; :func:`find` reads what it saw.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from flashrt.host.discovery.attention.core import Masks, find_core
from flashrt.host.discovery.attention.delta import find_delta
from flashrt.host.discovery.attention.reach import look
from flashrt.host.discovery.attention.result import ATTENTION_CORE, QK_NORM_ROPE, Found, miss
from flashrt.host.discovery.attention.sequence import find_sequence
from flashrt.host.discovery.attention.tap import AttentionTap, Site
from flashrt.host.discovery.attention.two_way import find_two_way, packs
from flashrt.host.discovery.attention.vision import find_vision
from flashrt.host.discovery.near_miss import NearMiss
from flashrt.host.discovery.trace import Trace
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason

if TYPE_CHECKING:
    import torch

__all__ = ["AttentionTap", "find"]


def find(
    model: torch.nn.Module, first: Trace, tap: AttentionTap
) -> tuple[list[Seam], list[NearMiss]]:
    """Seams of attention structures in call order, and the near misses, each with its reason.

    ``first`` is the trace of the forward that ``tap`` was entered for; the tap has seen what is
    needed. Fills ``tap.plans``: what the adapter of a seam needs to know, by seam id. ``model`` is
    not run.
    """
    import torch

    sites: dict[str, list[Site]] = {path: [] for path in tap.offered}
    for site in tap.sites:
        sites.setdefault(site.path, []).append(site)
    order = {site.path: i for i, site in reversed(list(enumerate(tap.sites)))}
    seams: list[Seam] = []
    missed: list[NearMiss] = []
    known: Masks = {}
    with torch.no_grad():
        with suppress(Exception):  # a host's tensors may raise anything; what was told stands
            look(tap.sites)
        for path in sorted(sites, key=lambda p: order.get(p, len(order))):
            for found in _at(path, sites[path], tap, known):
                seams += found.seams
                missed += found.misses
                tap.plans |= found.plans
    if not any(site.attended for site in tap.sites):
        what = "the forward made no call of scaled_dot_product_attention"
        missed.append(NearMiss.of("", ATTENTION_CORE, Reason.STRUCTURE, what))
    return seams, missed


def _at(path: str, sites: list[Site], tap: AttentionTap, known: Masks) -> Iterator[Found]:
    """What every finder says of the calls of one module."""
    attending = [site for site in sites if site.attended]
    if attending:
        yield find_core(path, attending, known)
        yield _rotations(path, attending)
        yield find_vision(path, attending)
    yield find_delta(path, sites, tap.offered.get(path, ()))


def _rotations(path: str, sites: list[Site]) -> Found:
    """qk_norm_rope of every call of one module, which must agree."""
    found = [find_two_way(s) if packs(s) else find_sequence(s) for s in sites]
    if any((f.seams, f.misses) != (found[0].seams, found[0].misses) for f in found):
        what = "its calls do not norm and rotate q and k in one way"
        return miss(path, QK_NORM_ROPE, Reason.AMBIGUOUS, what)
    return found[0]
