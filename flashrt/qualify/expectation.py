"""What a caller states about results: floors of metrics, and states to expect."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flashrt.qualify.request import CellRequest
from flashrt.release.state import State
from flashrt_runtime.reason import Reason, Refusal


def parse_floors(texts: Sequence[str]) -> dict[str, float]:
    """Read ``METRIC=VALUE`` texts. Raises :class:`Refusal` (CONFLICT) for anything else."""
    floors: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not name or not math.isfinite(number) or name in floors:
            raise Refusal(
                Reason.CONFLICT,
                "a floor reads METRIC=VALUE, each metric once",
                subject=text,
                do="for example top1_agreement=0.95",
            )
        floors[name] = number
    return floors


def parse_expectations(
    texts: Sequence[str], requests: Sequence[CellRequest]
) -> dict[CellRequest, State]:
    """Read ``STATE`` (for every cell) and ``CELL=STATE`` texts, the later ones winning."""
    expected: dict[CellRequest, State] = {}
    for text in texts:
        name, _, state_text = text.rpartition("=")
        if state_text not in {state.value for state in State}:
            raise Refusal(
                Reason.CONFLICT,
                f"{state_text!r} is no state",
                subject=text,
                do=f"one of {', '.join(state.value for state in State)}",
            )
        chosen = [r for r in requests if not name or r == _named(name, r)]
        if not chosen:
            raise Refusal(
                Reason.CONFLICT,
                f"no requested cell reads {name!r}",
                subject=text,
                do=f"one of {', '.join(r.text for r in requests)}",
            )
        expected |= dict.fromkeys(chosen, State(state_text))
    return expected


def _named(name: str, like: CellRequest) -> CellRequest | None:
    """The cell that ``name`` reads as, over ``like``'s context; ``None`` if it reads as none."""
    try:
        return CellRequest.parse(name, like.context)
    except Refusal:
        return None
