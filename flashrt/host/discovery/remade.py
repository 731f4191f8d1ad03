"""Modules that multiply by a matrix which they make from other tensors, in every call anew."""

from __future__ import annotations

from itertools import islice

from flashrt.host.discovery.near_miss import LINEAR_PROJ, NearMiss
from flashrt.host.discovery.projection import held
from flashrt.host.discovery.trace import Call, Observed, Paths, Trace
from flashrt_runtime.reason import Reason

_PARTS = 6  # modules that such a one is made of, at most


def remade(paths: Paths, seen: Trace) -> list[NearMiss]:
    """Refusals of parametrised, weight-normed and fake-quantised projections.

    Each was called, has the widths of a matrix that it or its parts hold, and holds more than that
    matrix and a vector, none of it in a module that reads and returns rows of its own.
    """
    found = []
    for module, names in paths.items():
        call = next(iter(seen.calls.get(names[0], ())), None)
        parts = list(islice(module.modules(), _PARTS + 1))
        own = [p for part in parts for p in held(part).values()]
        plain = len(parts) == 1 and sorted(p.dim() for p in own) in ([2], [1, 2])
        if call is None or plain or not own or len(parts) > _PARTS:
            continue
        inside = [c for part in parts[1:] for path in paths[part] for c in seen.calls.get(path, ())]
        if _multiplies(call, {tuple(p.shape) for p in own}) and not any(
            c.input is not None and call.input is not None and _rows(c.input) == _rows(call.input)
            for c in inside
        ):
            what = "it makes the matrix that it multiplies by from other tensors, in every call"
            found.append(NearMiss.of(names[0], LINEAR_PROJ, Reason.LAYOUT, what))
    return found


def _multiplies(call: Call, shapes: set[tuple[int, ...]]) -> bool:
    """Whether rows came out as wide as one of these matrices [out, in] would make them."""
    x, y = call.input, call.output
    if x is None or y is None or not x.shape or not x.dtype.is_floating_point:
        return False
    return _rows(x) == _rows(y) and (y.width, x.width) in shapes


def _rows(seen: Observed) -> tuple[int, ...]:
    return seen.shape[:-1]
