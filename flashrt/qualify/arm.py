"""The two arms of a race: the unmodified host, and a structural copy of it with seams attached."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt_runtime.chain_route import members_record
from flashrt_runtime.contract import Seam

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.handle import Handle


def share_weights(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of the module tree that uses the same parameter and buffer objects as ``model``.

    Attaching to the copy leaves the host's tree alone, so both arms live in one process at the
    cost of one set of weights.
    """
    memo: dict[int, Any] = {id(t): t for t in model.parameters()}
    memo |= {id(t): t for t in model.buffers()}
    return copy.deepcopy(model, memo)


@dataclass(frozen=True)
class Treated:
    """A treated arm: the copy, its handle, and what was bound where."""

    model: torch.nn.Module
    handle: Handle
    operators: dict[str, str]  # seam id -> operator it must execute once per forward
    weight_bytes: int
    host_weight_bytes: int
    notes: dict[str, dict[str, str]]

    @property
    def chains(self) -> list[dict[str, Any]]:
        """Who is in each chain as it is attached now, in the form of path evidence."""
        units = self.handle.units.items()
        found = [
            {"producer": unit, "readers": [part for part in parts if part != unit]}
            for unit, parts in units
            if parts != (unit,)
        ]
        return members_record(found)


def build_treated(
    model: torch.nn.Module,
    plan_seams: Sequence[dict[str, Any]],
    rows: int,
    chains: Sequence[dict[str, Any]] = (),
) -> Treated:
    """Bind and attach every ``bind`` seam of a plan to a weight-sharing copy of ``model``.

    ``rows`` is the exact number of rows that the measured form serves; calls with other row
    counts run the host's module and are counted as dispatched. ``chains`` are the plan's: each is
    attached as one. Raises :class:`Refusal` for a seam that cannot be bound or a chain that is not
    whole.
    """
    from flashrt_runtime.activate import make_swap
    from flashrt_runtime.chain_route import ChainRoute, link
    from flashrt_runtime.guard import Place
    from flashrt_runtime.swap import attach

    arm = share_weights(model)
    state = model.state_dict()
    swaps, operators, packed, original = [], {}, 0, 0
    notes: dict[str, dict[str, str]] = {}
    for record in plan_seams:
        if record["outcome"] != "bind":
            continue
        seam = Seam.from_record(record["seam"])
        swap = make_swap(
            seam, record["impl"], record["scales"], state, (rows, rows), place=Place.CAPTURED
        )
        swaps.append(swap)
        operators[seam.id] = swap.bound.operator
        packed += swap.bound.weight_bytes
        original += sum(state[k].numel() * state[k].element_size() for k in seam.weights.values())
        notes[seam.id] = dict(swap.bound.notes)
    scales = {record["seam"]["id"]: record["scales"] for record in plan_seams}
    routes = [ChainRoute.from_record(record, "plan") for record in chains]
    handle = attach(arm, link(swaps, routes, scales))
    return Treated(arm, handle, operators, packed, original, notes)
