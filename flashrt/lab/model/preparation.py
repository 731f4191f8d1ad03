"""How an artifact came to be: provenance, never a control of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from flashrt_runtime.reason import Reason, Refusal


@dataclass(frozen=True)
class Preparation:
    """Losses are nats for each token of held-out documents, ``None`` where none was measured."""

    corpus: str
    corpus_digest: str
    seed: int
    steps: int
    batch: int
    window: int
    learning_rate: float
    documents: int
    held_out_documents: int
    held_out_loss: float | None
    held_out_bits_per_byte: float | None
    python: str
    torch: str
    flashrt: str

    @classmethod
    def untrained(cls, seed: int) -> Preparation:
        """Random weights from a seed."""
        return cls("", "", seed, 0, 0, 0, 0.0, 0, 0, None, None, "", "", "")

    @property
    def sentence(self) -> str:
        """One line for people."""
        if not self.steps:
            return f"random weights, seed {self.seed}"
        return (
            f"flashrt lab prepare: {self.steps} steps on {self.corpus}, seed {self.seed}, "
            f"torch {self.torch}"
        )

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Preparation:
        """The inverse of :meth:`record`. Raises :class:`Refusal` (SCHEMA) for other keys."""
        if set(record) != {field.name for field in fields(cls)}:
            raise Refusal(Reason.SCHEMA, "its keys are not those of a preparation")
        return cls(**record)
