"""Lists cadence_static: projections that computed the same thing again because nothing changed.

It is an opportunity that takes a schedule which one forward cannot show, so it is never a seam:
the host's own cadence stays, and a person who knows the schedule may bind it.
"""

from __future__ import annotations

from flashrt.host.discovery.near_miss import CADENCE_STATIC, Found, NearMiss
from flashrt.host.discovery.projection import Projection
from flashrt.host.discovery.view import View, common_parent
from flashrt_runtime.reason import Reason


def find(view: View) -> Found:
    """One near miss for each source that one or more projections read, unchanged, in every call."""
    groups: dict[tuple[int, ...], list[Projection]] = {}
    for projection in view.projections.values():
        reads = projection.reads
        if len(reads) > 1 and len(set(reads)) == 1:
            groups.setdefault(reads, []).append(projection)
    found = Found()
    for reads, group in groups.items():
        paths = [p.path for p in group]
        what = (
            f"an opportunity, not taken: {', '.join(paths)} read one unchanged tensor in all "
            f"{len(reads)} calls; when it changes is a schedule that a forward does not show"
        )
        where = paths[0] if len(paths) == 1 else common_parent(paths)
        found.add(NearMiss.of(where, CADENCE_STATIC, Reason.KEPT_HOST, what))
    return found
