"""What a fresh measuring process is told, as JSON: it gets no objects, only this."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from flashrt.qualify.request import Budget, CellRequest


@dataclass(frozen=True)
class Job:
    """One process's work.

    ``host`` and ``frames`` are the references the user typed; ``frames_dir`` the cache the corpus
    lies in; ``plans`` maps a cell's label to its plan body; ``process`` is this process's index
    (0 also measures parity and the host in its other dtypes).
    """

    host: str
    frames: str
    cells: tuple[CellRequest, ...]
    plans: dict[str, dict[str, Any]]
    budget: Budget
    rules: dict[str, dict[str, Any]]  # label -> thresholds
    held_out: tuple[str, ...]
    seed: int
    process: int

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)

    @classmethod
    def from_record(cls, body: dict[str, Any]) -> Job:
        """The inverse of :meth:`record`."""
        return cls(
            host=body["host"],
            frames=body["frames"],
            cells=tuple(CellRequest(**c) for c in body["cells"]),
            plans=body["plans"],
            budget=Budget(**body["budget"]),
            rules=body["rules"],
            held_out=tuple(body["held_out"]),
            seed=body["seed"],
            process=body["process"],
        )
