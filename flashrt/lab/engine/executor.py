"""What the engine asks of whatever computes: encode a text, run new positions after a state."""

from __future__ import annotations

from typing import Protocol

from flashrt.lab.records import Node


class State(Protocol):
    """An immutable KV state, named by its content."""

    @property
    def name(self) -> str:
        """Content identity: checkpoint, tokenizer, token ids, precision, executor."""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The prefix whose keys and values it holds; position i is the i-th."""


class Step(Protocol):
    """What one computation gives."""

    @property
    def logits(self) -> tuple[float, ...]:
        """Scores by token id at the last position that was run."""

    @property
    def state(self) -> State:
        """The state after the new positions."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The operations that ran, each with its FLOPs and bytes."""


class Executor(Protocol):
    """A model and its tokenizer, as the engine sees them."""

    @property
    def context(self) -> int:
        """Positions that the model has."""

    @property
    def position_bytes(self) -> int:
        """Bytes of keys and values of one position."""

    @property
    def turn_end(self) -> int:
        """The id that ends a turn. It is selected and never published."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of the framed prompt."""

    def display(self, ids: tuple[int, ...]) -> str:
        """What published ids read as; nothing is repaired."""

    def run(self, input_ids: tuple[int, ...], state: State | None) -> Step:
        """Run at least one new position after ``state`` (none: from position 0)."""
