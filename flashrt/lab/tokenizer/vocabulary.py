"""What each token ID stands for: tags, byte triples, and pieces learnt from a corpus.

IDs lie in this order: the tags, the byte escape, sixteen hexadecimal digits, one piece for each
byte that the corpus has, one piece for each merge. A byte that has no piece of its own is written
as three tokens: the escape and two digits. Text is bytes, and no byte stands for a tag, so
nothing that a user writes can make one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from flashrt.lab.tokenizer.turn import ROLES, Role
from flashrt_runtime.reason import Reason, Refusal

Place = Literal["tag", "byte_escape", "byte_digit", "piece"]
TURN_END = "TURN_END"
TAGS = (*(f"{role.upper()}_TURN" for role in ROLES), TURN_END)
ESCAPE = len(TAGS)
FIRST_DIGIT = ESCAPE + 1
FIRST_PIECE = FIRST_DIGIT + 16
LONGEST_WORD = 64  # bytes; merging is quadratic in a word's length, and no merge leaves a word


def _refuse(what: str, subject: str = "vocabulary") -> Refusal:
    return Refusal(Reason.CONFLICT, what, subject=subject)


@dataclass(frozen=True)
class Vocabulary:
    """``single`` are the byte values with a piece, ascending; ``merges`` pairs of piece IDs.

    Merge *i* makes the piece ``FIRST_PIECE + len(single) + i`` out of two pieces with lower IDs.
    Raises :class:`Refusal` (CONFLICT) for bytes out of order or range, for a merge of what does
    not exist yet, for a piece longer than any word, and for two pieces that are the same bytes.
    """

    single: tuple[int, ...]
    merges: tuple[tuple[int, int], ...]
    pieces: tuple[bytes, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if list(self.single) != sorted(set(self.single)) or not set(self.single) <= set(range(256)):
            raise _refuse("single bytes are 0 to 255, ascending, each once")
        pieces = [bytes([value]) for value in self.single]
        for left, right in self.merges:
            if min(left, right) < FIRST_PIECE or max(left, right) >= self._next(pieces):
                raise _refuse(f"merge of {left} and {right}: a piece that does not exist yet")
            one, other = pieces[left - FIRST_PIECE], pieces[right - FIRST_PIECE]
            # Sixty merges that each double would not fit into any memory.
            if len(one) + len(other) > LONGEST_WORD:
                raise _refuse(f"merge of {left} and {right}: longer than {LONGEST_WORD} bytes")
            pieces.append(one + other)
        if len(set(pieces)) != len(pieces):
            raise _refuse("two pieces are the same bytes")
        object.__setattr__(self, "pieces", tuple(pieces))

    @staticmethod
    def _next(pieces: Sequence[bytes]) -> int:
        return FIRST_PIECE + len(pieces)

    def __len__(self) -> int:
        return self._next(self.pieces)

    def kind(self, token_id: int) -> Place:
        """What a token stands for. Raises :class:`Refusal` (CONFLICT) for an ID outside it."""
        if not 0 <= token_id < len(self):
            what = f"the vocabulary has the IDs 0 to {len(self) - 1}"
            raise _refuse(what, f"token {token_id}")
        if token_id < ESCAPE:
            return "tag"
        if token_id == ESCAPE:
            return "byte_escape"
        return "byte_digit" if token_id < FIRST_PIECE else "piece"

    def display(self, token_id: int) -> str:
        """How a token is shown: a tag's name, ``BYTE``, a digit, or a piece with bytes that are
        no UTF-8 as ``\\xNN``. For people: two tokens may look the same."""
        kind = self.kind(token_id)
        if kind == "tag":
            return TAGS[token_id]
        if kind == "byte_escape":
            return "BYTE"
        if kind == "byte_digit":
            return f"{token_id - FIRST_DIGIT:X}"
        return self.piece(token_id).decode("utf-8", "backslashreplace")

    def piece(self, token_id: int) -> bytes:
        """The bytes of a token of kind ``piece``."""
        return self.pieces[token_id - FIRST_PIECE]

    @staticmethod
    def triple(value: int) -> tuple[int, int, int]:
        """The three tokens of a byte that has no piece."""
        return ESCAPE, FIRST_DIGIT + (value >> 4), FIRST_DIGIT + (value & 15)

    @staticmethod
    def byte(triple: Sequence[int]) -> int:
        """The byte of an escape and two digits; the inverse of :meth:`triple`."""
        high, low = (token_id - FIRST_DIGIT for token_id in triple[1:])
        return (high * 16 + low) & 255

    @staticmethod
    def opens(role: Role) -> int:
        """The tag that begins a turn of this role."""
        return ROLES.index(role)

    @property
    def turn_end(self) -> int:
        """The tag that ends a turn."""
        return TAGS.index(TURN_END)
