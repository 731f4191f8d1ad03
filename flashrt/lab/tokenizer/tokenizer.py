"""The identified vocabulary and codec: turns to token IDs with byte spans, and IDs back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashrt.document.atomic import write_atomic
from flashrt.document.canonical import canonical_bytes, digest_of, read_json, seal
from flashrt.document.problem import InputError
from flashrt.lab.records import Encoding, Token
from flashrt.lab.tokenizer.learn import learn
from flashrt.lab.tokenizer.pieces import Pieces, words
from flashrt.lab.tokenizer.stream import Rendered, StreamDecoder, render
from flashrt.lab.tokenizer.turn import ROLES, Role, Turn
from flashrt.lab.tokenizer.vocabulary import ESCAPE, TAGS, Vocabulary
from flashrt_runtime.reason import Reason, Refusal

FILE = "tokenizer.json"
CODEC_VERSION = "tagged-byte-pieces-1"


def source_sha256(turns: Sequence[Turn]) -> str:
    """``sha256:<hex>`` over each turn's role, length and bytes, in order."""
    digest = hashlib.sha256()
    for turn in turns:
        digest.update(f"{turn.role}\0{len(turn.data)}\0".encode())
        digest.update(turn.data)
    return f"sha256:{digest.hexdigest()}"


@dataclass(frozen=True)
class Tokenizer:
    """``manifest_sha256`` is the digest of everything that decides an encoding."""

    vocabulary: Vocabulary
    manifest_sha256: str = field(init=False)
    _pieces: Pieces = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "manifest_sha256", digest_of(self.manifest()))
        object.__setattr__(self, "_pieces", Pieces(self.vocabulary))

    @classmethod
    def build(cls, texts: Iterable[bytes], size: int = 1024) -> Tokenizer:
        """A tokenizer of at most ``size`` tokens, learnt from texts. Raises as ``learn`` does."""
        return cls(learn(texts, size))

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read ``tokenizer.json``. Raises :class:`InputError` for anything but what ``save`` wrote:
        another codec, wrong types, a digest that does not fit."""
        path = folder / FILE
        body = read_json(path)
        try:
            single = tuple(_integer(value) for value in body["bytes"])
            merges = tuple((_integer(left), _integer(right)) for left, right in body["merges"])
            made = cls(Vocabulary(single, merges))
        except (KeyError, TypeError, ValueError, Refusal) as error:
            what = error.what if isinstance(error, Refusal) else f"not a tokenizer: {error!s}"
            raise InputError(str(path), 1, "$", what, "prepare the artifact again") from error
        if body != made.manifest() | {"digest": made.manifest_sha256}:
            what = f"the digest or a field is not that of a {CODEC_VERSION} tokenizer"
            do = "prepare the artifact again"
            raise InputError(str(path), 1, "$.digest", what, do, reason=Reason.DIGEST)
        return made

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json``, canonical. Raises :class:`Refusal` (STORAGE)."""
        write_atomic(folder / FILE, canonical_bytes(seal(self.manifest())) + b"\n")

    def manifest(self) -> dict[str, Any]:
        """JSON form, without its digest."""
        return {
            "codec_version": CODEC_VERSION,
            "tags": list(TAGS),
            "bytes": list(self.vocabulary.single),
            "merges": [list(pair) for pair in self.vocabulary.merges],
        }

    def __len__(self) -> int:
        return len(self.vocabulary)

    @property
    def turn_end(self) -> int:
        """The tag that ends a turn: selected by the model, never published."""
        return self.vocabulary.turn_end

    def token(self, token_id: int) -> Token:
        """One entry of the vocabulary. Raises :class:`Refusal` (CONFLICT) for an unknown ID."""
        kind = self.vocabulary.kind(token_id)
        if kind == "piece":
            return Token(token_id, self.vocabulary.piece(token_id), "piece")
        if kind == "tag":
            return Token(token_id, b"", "turn_end" if token_id == self.turn_end else "role")
        return Token(token_id, b"", "byte")

    def display(self, token_id: int) -> str:
        """How a token is shown, for people: two tokens may look the same."""
        return self.vocabulary.display(token_id)

    def encode(self, turns: Sequence[Turn], opened: Role | None = None) -> Encoding:
        """Frame and encode turns: each is its role's tag, its bytes, TURN_END.

        ``opened`` adds the tag of a turn that the model is to write. ``spans`` has one pair
        ``(start, end)`` for each ID, in the bytes of all turns put together: they partition those
        bytes, in order. A tag's span is empty, and so are a byte triple's first two: its last
        token has the byte.
        """
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        at = 0
        for turn in turns:
            ids.append(self.vocabulary.opens(turn.role))
            spans.append((at, at))
            for word in words(turn.data):
                for token_id in self._pieces.of_word(word):
                    size = self._ends(ids, token_id)
                    ids.append(token_id)
                    spans.append((at, at + size))
                    at += size
            ids.append(self.turn_end)
            spans.append((at, at))
        if opened is not None:
            ids.append(self.vocabulary.opens(opened))
            spans.append((at, at))
        return Encoding(
            ids=tuple(ids),
            spans=tuple(spans),
            input_sha256=source_sha256(turns),
            manifest_sha256=self.manifest_sha256,
            codec_version=CODEC_VERSION,
        )

    def prompt(self, text: str | bytes) -> Encoding:
        """The encoding of a request: one user turn, then an assistant turn that is opened."""
        return self.encode((Turn("user", text),), opened="assistant")

    def _ends(self, before: Sequence[int], token_id: int) -> int:
        """How many source bytes the encoder's next token completes."""
        kind = self.vocabulary.kind(token_id)
        if kind == "piece":
            return len(self.vocabulary.piece(token_id))
        # Only the encoder's own output comes here, where two digits follow every escape.
        return int(kind == "byte_digit" and before[-2] == ESCAPE)

    def turns(self, ids: Sequence[int]) -> tuple[Turn, ...]:
        """The turns that were encoded to exactly these IDs, as bytes.

        Raises :class:`Refusal` (CONFLICT) for IDs that are no encoding of turns, an opened turn
        included.
        """
        found: list[Turn] = []
        role: Role | None = None
        data = b""
        triple: list[int] = []
        for token_id in ids:
            kind = self.vocabulary.kind(token_id)
            if kind in ("byte_escape", "byte_digit"):
                triple.append(token_id)
                if len(triple) == 3:
                    data += bytes([self.vocabulary.byte(triple)])
                    triple.clear()
            elif kind == "piece":
                data += self.vocabulary.piece(token_id)
            elif role is None and token_id != self.turn_end:
                role = ROLES[token_id]
            elif role is not None and token_id == self.turn_end:
                found.append(Turn(role, data))
                role, data = None, b""
        if self.encode(found).ids != tuple(ids):
            raise Refusal(Reason.CONFLICT, "these IDs are no encoding of turns")
        return tuple(found)

    def decode(self, ids: Sequence[int]) -> Rendered:
        """Generated IDs as text and faults, whole; see :class:`StreamDecoder`."""
        return render(self.vocabulary, ids)

    def stream(self) -> StreamDecoder:
        """A decoder for the IDs of one output, token by token."""
        return StreamDecoder(self.vocabulary)


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no integer")
    return value
