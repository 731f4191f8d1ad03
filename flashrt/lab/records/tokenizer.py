"""What encoding gives: token IDs and the source bytes that each stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from flashrt.lab.records.base import Record, Says

TokenKind = Literal["role", "turn_end", "piece", "byte"]


@dataclass(frozen=True)
class Token(Record):
    """One entry of the vocabulary."""

    id: Annotated[int, Says("Its number in the vocabulary.", "1", least=0)]
    piece: Annotated[bytes, Says("The bytes that it writes; none for a tag.")]
    kind: Annotated[
        TokenKind, Says("A tag of a role, the end of a turn, a piece of text, a part of one byte.")
    ]


@dataclass(frozen=True)
class Encoding(Record):
    """Token IDs with their evidence, under one vocabulary and codec.

    The spans partition the source, which is the bytes of all turns in order; tags have empty ones.
    """

    ids: Annotated[tuple[int, ...], Says("Token IDs in order.", "1")]
    spans: Annotated[
        tuple[tuple[int, int], ...],
        Says("For each ID, where its source bytes begin and where they end.", "bytes"),
    ]
    input_sha256: Annotated[str, Says("Digest of what was encoded: roles and bytes of its turns.")]
    manifest_sha256: Annotated[str, Says("Digest of the vocabulary.")]
    codec_version: Annotated[str, Says("Version of the rules that encode and decode.")]
