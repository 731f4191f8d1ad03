"""Where a host's Python asks a tensor for its truth: the decisions of a tensor-controlled loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Decision:
    """One question: the line that asked, the answer, and which question of the call it was."""

    place: str
    answer: bool
    index: int


def _asker() -> str:
    """The line outside torch and this package that asked."""
    frame = inspect.currentframe()
    while frame is not None:
        path = frame.f_code.co_filename
        if "/torch/" not in path and "/flashrt_runtime/" not in path:
            return f"{path}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return "an unknown line"


def decisions_of(mark: Callable[[int], None]) -> Any:
    """A context that lists, in ``found``, every ``bool(tensor)``. ``mark(index)`` is called with
    each, after it was answered."""
    import torch
    from torch.overrides import TorchFunctionMode

    asks = {torch.Tensor.__bool__, torch.is_nonzero, torch.Tensor.is_nonzero}

    class Decisions(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[Decision] = []

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if func in asks:
                index = len(self.found)
                self.found.append(Decision(_asker(), bool(result), index))
                mark(index)
            return result

    return Decisions()


def loop_of(found: list[Decision]) -> list[Decision] | None:
    """The decisions of the one loop that ran: true K times, then false. ``None`` without one.

    A line that asks more often, in another pattern, is no loop of a fixed number of steps; two
    lines that look like loops are nobody's guess, so they are none either.
    """
    by_place: dict[str, list[Decision]] = {}
    for decision in found:
        by_place.setdefault(decision.place, []).append(decision)
    loops = [
        asked
        for asked in by_place.values()
        if len(asked) > 1 and all(one.answer for one in asked[:-1]) and not asked[-1].answer
    ]
    return loops[0] if len(loops) == 1 else None
