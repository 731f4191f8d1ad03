"""Runs one module of a host again, on rows that it was seen to read, at another scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashrt.host.discovery.trace import Call, trace

if TYPE_CHECKING:
    import torch

_AMAX = 4.0  # where the activations that a name confuses are furthest apart


def louder(
    model: torch.nn.Module, region: str, first: Call, paths: Sequence[str]
) -> list[Call] | None:
    """The calls of the modules at ``paths`` when ``region`` reads more of what ``first`` read.

    The input is scaled until the largest value that ``first`` puts out is about 4. ``None`` when
    that is not possible or one of the modules is not called. The model is as it was afterwards.
    """
    if first.input is None or first.output is None:
        return None
    amax = float(first.output.kept.abs().amax())
    if not amax > 0:
        return None
    x = first.input.kept * (_AMAX / amax)
    module = model.get_submodule(region)
    cut = len(region) + 1 if region else 0
    inside = [path[cut:] for path in paths]
    again = trace(module, lambda: module(x), set(inside))
    calls = [again.calls.get(path, []) for path in inside]
    return [each[0] for each in calls] if all(calls) else None
