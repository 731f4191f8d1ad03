"""Whether a binding and discovery say the same of one host, whatever they call a seam."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flashrt.host.discovery.near_miss import CADENCE_STATIC, NearMiss
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason

UNSEEN = {
    CADENCE_STATIC: "which calls may keep the last answer is a schedule of the sampler's steps; a "
    "forward shows no schedule, and here none of its calls read a tensor unchanged from the one "
    "before"
}
OTHERWISE = "in the forward that discovery watched, nothing at its modules was like it"


@dataclass(frozen=True)
class Match:
    """``contradicted``: both name the same modules and say different things of them.

    ``unseen``: bound, and not found by one forward, with what discovery said there if it said
    anything. A binding may know more than a forward shows (a schedule, a second cadence).
    """

    contradicted: tuple[Because, ...]
    unseen: tuple[Because, ...]


def match(bound: Sequence[Seam], found: Sequence[Seam], misses: Iterable[NearMiss] = ()) -> Match:
    """Compare every bound seam with the found seams of its structure that hold its modules."""
    here = {(miss.structure, miss.path): miss for miss in misses}
    contradicted, unseen = [], []
    for seam in bound:
        others = [o for o in found if o.structure == seam.structure and _same_modules(o, seam)]
        fields = [_differing(seam, other) for other in others]
        if not others:
            unseen.append(_unseen(seam, here))
        elif all(fields):
            nearest = sorted(fields, key=len)[0]
            detail = f"binding and discovery differ in {', '.join(nearest)}"
            contradicted.append(Because(Reason.BINDING, detail, seam.id))
    return Match(tuple(contradicted), tuple(unseen))


def _same_modules(a: Seam, b: Seam) -> bool:
    return set(a.members.values()) == set(b.members.values())


def _differing(bound: Seam, found: Seam) -> list[str]:
    """Fields in which they contradict each other; sizes that only one of them knows do not."""
    alike = {
        "variant": dict(bound.variant) == dict(found.variant),
        "dims": all(found.dims.get(name, size) == size for name, size in bound.dims.items()),
        "weights": set(bound.weights.values()) == set(found.weights.values()),
        "points": dict(bound.points) == dict(found.points),
    }
    return [field for field, same in alike.items() if not same]


def _unseen(seam: Seam, misses: dict[tuple[str, str], NearMiss]) -> Because:
    for path in (*seam.members.values(), ""):
        miss = misses.get((seam.structure, path))
        if miss is not None:
            detail = f"{seam.structure} is bound here; discovery: {miss.because.detail}"
            return Because(miss.because.reason, detail, seam.id)
    why = UNSEEN.get(seam.structure, OTHERWISE)
    detail = f"{seam.structure} is bound here and discovery cannot see it: {why}"
    return Because(Reason.STRUCTURE, detail, seam.id)
