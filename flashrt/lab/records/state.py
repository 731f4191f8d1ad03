"""KVState: the keys and values of a prefix, named by what they were computed from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from flashrt.document.canonical import canonical_bytes, sha256
from flashrt.lab.records.base import Record, Says


@dataclass(frozen=True)
class KVState(Record):
    """An immutable snapshot; continuing a sequence makes a new one.

    Position ``i`` of the sequence is ``token_ids[i]``, from 0 on. ``keys[layer]`` and
    ``values[layer]`` are float32 numbers, little-endian and row-major ``[positions, width]``, the
    heads side by side. Where a state is placed is no part of it.
    """

    checkpoint_sha256: Annotated[str, Says("Digest of the weights that computed it.")]
    tokenizer_sha256: Annotated[str, Says("Digest of the tokenizer that made the token IDs.")]
    token_ids: Annotated[tuple[int, ...], Says("The prefix; the first is at position 0.", "1")]
    keys: Annotated[tuple[bytes, ...], Says("Attention keys of each layer.", "1")]
    values: Annotated[tuple[bytes, ...], Says("Attention values of each layer.", "1")]
    precision: Annotated[str, Says("What the keys and values are and were computed in.")]
    executor: Annotated[str, Says("The executor whose arithmetic they are the result of.")]

    @cached_property
    def name(self) -> str:
        """``sha256:<hex>`` over what it was computed from: :meth:`name_of` its own fields."""
        return self.name_of(
            (self.checkpoint_sha256, self.tokenizer_sha256),
            self.token_ids,
            self.precision,
            self.executor,
        )

    @staticmethod
    def name_of(
        artifact: tuple[str, str], token_ids: tuple[int, ...], precision: str, executor: str
    ) -> str:
        """The name that a state will have, before it is computed.

        ``artifact`` holds the digests of checkpoint and tokenizer. Positions are in it, since the
        token IDs are in order from position 0.
        """
        return sha256(canonical_bytes([*artifact, list(token_ids), precision, executor]))

    @property
    def positions(self) -> int:
        """How many positions it covers."""
        return len(self.token_ids)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(map(len, self.keys)) + sum(map(len, self.values))
