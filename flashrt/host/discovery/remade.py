"""Modules that multiply by a matrix which they make from other tensors, in every call anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashrt.host.discovery.near_miss import LINEAR_PROJ, NearMiss
from flashrt.host.discovery.projection import held
from flashrt.host.discovery.trace import Call, Observed, Paths, Trace
from flashrt_runtime.reason import Reason

if TYPE_CHECKING:
    import torch

_PARTS = 6  # modules that such a one is made of, at most


def remade(paths: Paths, seen: Trace) -> list[NearMiss]:
    """Refusals of parametrised, weight-normed and fake-quantised projections.

    Each was called, has the widths of a matrix that it or its parts hold, and holds more than that
    matrix and a vector, none of it in a module that reads and returns rows of its own.
    """
    found = []
    for module, names in paths.items():
        calls = seen.calls.get(names[0])
        widths = _widths(calls[0]) if calls else None
        if not calls or widths is None:
            continue
        parts = _parts(module)
        own = [p for part in parts for p in held(part).values()]
        plain = len(parts) == 1 and sorted([p.dim() for p in own]) in ([2], [1, 2])
        if plain or len(parts) > _PARTS or widths not in [p.shape for p in own]:
            continue
        inside = [c for part in parts[1:] for path in paths[part] for c in seen.calls.get(path, ())]
        read = calls[0].input
        if not any(c.input and read and _rows(c.input) == _rows(read) for c in inside):
            what = "it makes the matrix that it multiplies by from other tensors, in every call"
            found.append(NearMiss.of(names[0], LINEAR_PROJ, Reason.LAYOUT, what))
    return found


def _parts(module: torch.nn.Module) -> list[torch.nn.Module]:
    """It and the modules in it, or more than ``_PARTS`` of them."""
    parts, todo = {module: None}, [module]
    while todo and len(parts) <= _PARTS:
        for child in todo.pop()._modules.values():
            if child is not None and child not in parts:
                parts[child] = None
                todo.append(child)
    return list(parts)


def _widths(call: Call) -> tuple[int, int] | None:
    """The widths [out, in] of floating rows, where as many came out as went in."""
    x, y = call.input, call.output
    if x is None or y is None or not x.shape or not x.kept.is_floating_point():
        return None
    return (y.width, x.width) if _rows(x) == _rows(y) else None


def _rows(seen: Observed) -> tuple[int, ...]:
    return seen.shape[:-1]
