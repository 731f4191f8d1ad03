"""Where seams sit among each other: which overlap, and which is a model's output head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flashrt_runtime.contract import Seam


def overlap(seam: Seam, covered: Mapping[str, str]) -> str | None:
    """The seam that already holds one of these modules, a module around or a module inside it."""
    for member in seam.members.values():
        for path, owner in covered.items():
            nested = path.startswith(f"{member}.") or member.startswith(f"{path}.")
            if path == member or nested:
                return owner
    return None


def find_heads(seams: Sequence[Seam]) -> frozenset[str]:
    """linear_proj seams whose nearest module with another seam in it holds every seam.

    That is an output head, wherever it is called what: the projections of a layer have siblings
    in the layer, and a head's first company is the whole model.
    """
    everything = {seam.id for seam in seams}
    heads = set()
    for seam in seams:
        scope = seam.id if seam.structure.startswith("linear_proj@") else ""
        while scope:
            scope = scope.rpartition(".")[0]
            prefix = f"{scope}." if scope else ""
            inside = {other for other in everything if other.startswith(prefix)}
            if len(inside) > 1:
                if inside == everything:
                    heads.add(seam.id)
                break
    return frozenset(heads)
