"""A loaded artifact and the executor that runs it, as the engine sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from flashrt.lab.engine.executor import State, Step
from flashrt.lab.model import ExactExecutor, LoadedArtifact
from flashrt.lab.records import KVState


@dataclass(frozen=True)
class ModelExecutor:
    """The exact executor of one artifact with its tokenizer. Loads torch when it first runs."""

    artifact: LoadedArtifact
    executor: ExactExecutor

    @classmethod
    def of(cls, artifact: LoadedArtifact) -> ModelExecutor:
        """For one artifact."""
        return cls(artifact, ExactExecutor(artifact))

    @property
    def context(self) -> int:
        """Positions that the model has."""
        return self.artifact.architecture.context

    @property
    def position_bytes(self) -> int:
        """Bytes of keys and values of one position, all layers."""
        return self.executor.state_bytes(1)

    @property
    def turn_end(self) -> int:
        """The id that ends a turn."""
        return self.artifact.tokenizer.turn_end

    def encode(self, text: str) -> tuple[int, ...]:
        """The user's turn and the opened turn of the assistant."""
        return self.artifact.tokenizer.prompt(text).ids

    def display(self, ids: tuple[int, ...]) -> str:
        """The published text; nothing is repaired."""
        return self.artifact.tokenizer.decode(ids).text

    def run(self, input_ids: tuple[int, ...], state: State | None) -> Step:
        """Run new positions. Raises :class:`Refusal` for a state that is not this model's."""
        return self.executor.run(input_ids, cast(KVState | None, state))
