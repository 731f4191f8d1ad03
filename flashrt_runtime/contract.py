"""What an impl and the runtime agree on. An impl imports this module and torch, nothing else.

A *seam* is one place in one host where a structure sits. An impl's ``bind`` turns a seam and its
weights into bodies (one ``nn.Module`` per replaced host module) whose work is done by a named
operator. Every operator takes the seam's id as its last argument, so that a captured graph proves
which seams it runs (once per seam).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

__all__ = ["Because", "BindRequest", "BoundSeam", "Point", "Reason", "Refusal", "Seam", "rows_of"]


@dataclass(frozen=True)
class Point:
    """Where a calibration point sits: a module path and the side of it that is observed."""

    module: str
    capture: str  # "input" or "output"

    def record(self) -> dict[str, str]:
        """JSON form."""
        return {"module": self.module, "capture": self.capture}


@dataclass(frozen=True)
class Seam:
    """One place in one host where a structure sits.

    ``members`` maps a role to the host module that is replaced (``{"self": path}`` for a seam of
    one module; ``{"q": …, "k": …, "v": …}`` for qkv_pack, in call order). ``weights`` maps the
    spec's slots to state-dict keys. ``dims`` are the solved symbolic dims.
    """

    id: str
    structure: str  # "decoder_ffn@1"
    members: Mapping[str, str]
    variant: Mapping[str, str]
    dims: Mapping[str, int]
    weights: Mapping[str, str]
    points: Mapping[str, Point] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """JSON form, stable key order left to the canonical writer."""
        return {
            "id": self.id,
            "structure": self.structure,
            "members": dict(self.members),
            "variant": dict(self.variant),
            "dims": dict(self.dims),
            "weights": dict(self.weights),
            "points": {name: point.record() for name, point in self.points.items()},
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Seam:
        """The inverse of :meth:`record`. Raises ``KeyError`` when a field is missing."""
        points = {n: Point(p["module"], p["capture"]) for n, p in record["points"].items()}
        return cls(
            id=record["id"],
            structure=record["structure"],
            members=_in_call_order(record["members"]),
            variant=dict(record["variant"]),
            dims=dict(record["dims"]),
            weights=dict(record["weights"]),
            points=points,
        )


_ROLE_ORDER = ("self", "q", "k", "v")


def _in_call_order(members: Mapping[str, str]) -> dict[str, str]:
    # Canonical JSON sorts keys; the order of calls is the structure's order of its roles.
    known = {role: members[role] for role in _ROLE_ORDER if role in members}
    return known | dict(members)


@dataclass(frozen=True)
class BindRequest:
    """All that an impl may look at when it binds.

    ``weights`` are the host's own tensors by slot (never copied by the caller, never to be
    mutated). ``scales`` are activation scales by point, as the scheme decided them (real value =
    scale × quantised value). ``form`` names one of the manifest's forms.
    """

    seam: Seam
    weights: Mapping[str, torch.Tensor]
    scales: Mapping[str, float]
    form: str


@dataclass(frozen=True)
class BoundSeam:
    """What ``bind`` returns.

    ``bodies`` has one ``torch.nn.Module`` per role of ``seam.members``; each is called with the
    arguments the host gives the module it replaces and returns what that module returns.
    ``operator`` is the qualified operator name (``flashrt::…``) that one forward of the seam
    executes exactly once. ``weight_bytes`` is the memory that the packed weights occupy.
    ``notes`` are recorded in the receipt (e.g. ``{"reduce_range": "true"}``).
    """

    bodies: Mapping[str, torch.nn.Module]
    operator: str
    weight_bytes: int
    notes: Mapping[str, str] = field(default_factory=dict)


def rows_of(shape: tuple[int, ...]) -> int:
    """Rows of an activation: the product of every dim but the last."""
    rows = 1
    for size in shape[:-1]:
        rows *= size
    return rows
