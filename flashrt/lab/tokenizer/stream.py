"""Generated token IDs to text, one at a time: append-only, complete UTF-8 only, nothing repaired.

Text is a display; the IDs are the evidence and stay whole. What is no text (a tag, half a byte
triple, bytes that are no UTF-8) adds nothing to it and is listed as a fault where it was found.
Bytes on both sides of a fault are never joined into one character. A sequence that may still
become text is pending, and is no fault until the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flashrt.lab.tokenizer.vocabulary import ESCAPE, Vocabulary
from flashrt_runtime.reason import Reason, Refusal


@dataclass(frozen=True)
class Fault:
    """Tokens ``first`` to before ``end`` of the output are no text. ``at`` is the number of
    characters of text before them, ``data`` the bytes that were complete, ``what`` one clause."""

    first: int
    end: int
    at: int
    data: bytes
    what: str


@dataclass(frozen=True)
class Rendered:
    """A finished output: its text, the faults in order, and how many of them are ``pending``
    sequences that the end cut off (the last ones)."""

    text: str
    faults: tuple[Fault, ...]
    pending: int


class StreamDecoder:
    """Fed one token at a time. ``push`` gives the text so far, ``finish`` the whole rendering."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._parts: list[str] = []
        self._length = 0
        self._faults: list[Fault] = []
        self._count = 0
        self._triple: list[int] = []
        self._bytes = b""  # the beginning of one character
        self._owners: list[tuple[int, int]] = []  # of each such byte: the tokens that gave it
        self._pending = 0
        self._done = False

    @property
    def text(self) -> str:
        """The text so far; it only ever grows."""
        return "".join(self._parts)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What was found to be no text so far."""
        return tuple(self._faults)

    def push(self, token_id: int) -> str:
        """Take one token and give the text so far.

        Raises :class:`Refusal` (CONFLICT) for an ID outside the vocabulary and after ``finish``.
        """
        if self._done:
            raise Refusal(Reason.CONFLICT, "the output was finished", subject=f"token {token_id}")
        kind = self._vocabulary.kind(token_id)
        here = self._count
        if kind == "byte_digit" and self._triple:
            self._triple.append(token_id)
            if len(self._triple) == 3:
                data = bytes([self._vocabulary.byte(self._triple)])
                self._triple.clear()
                self._take(data, here - 2, here + 1)
        else:
            self._cut_triple("a byte triple was broken off")
            if kind == "piece":
                self._take(self._vocabulary.piece(token_id), here, here + 1)
            elif token_id == ESCAPE:
                self._triple.append(token_id)
            else:
                self._cut_bytes("a character was broken off")
                what = "a digit outside a byte triple" if kind == "byte_digit" else "a tag"
                self._fault(here, here + 1, b"", what)
        self._count += 1
        return self.text

    def finish(self) -> Rendered:
        """End the output: what is pending becomes a fault. A second call gives the same."""
        found = len(self._faults)
        if not self._done:
            self._cut_bytes("the output ended within a character")
            self._cut_triple("the output ended within a byte triple")
            self._done = True
            self._pending = len(self._faults) - found
        return Rendered(self.text, self.faults, self._pending)

    def _fault(self, first: int, end: int, data: bytes, what: str) -> None:
        self._faults.append(Fault(first, end, self._length, data, what))

    def _cut_triple(self, what: str) -> None:
        if self._triple:
            first = self._count - len(self._triple)
            self._triple.clear()
            self._cut_bytes("a character was broken off")
            self._fault(first, self._count, b"", what)

    def _cut_bytes(self, what: str) -> None:
        if self._bytes:
            self._wrong(len(self._bytes), what)

    def _wrong(self, size: int, what: str) -> None:
        first, end = self._owners[0][0], self._owners[size - 1][1]
        self._fault(first, end, self._bytes[:size], what)
        self._drop(size)

    def _take(self, data: bytes, first: int, end: int) -> None:
        self._bytes += data
        self._owners += [(first, end)] * len(data)
        while self._bytes:
            try:
                self._show(self._bytes.decode("utf-8"), len(self._bytes))
            except UnicodeDecodeError as error:
                self._show(self._bytes[: error.start].decode("utf-8"), error.start)
                size = error.end - error.start
                if error.reason == "unexpected end of data" and size == len(self._bytes):
                    return
                self._wrong(size, "bytes that are no UTF-8")

    def _show(self, text: str, size: int) -> None:
        if text:
            self._parts.append(text)
            self._length += len(text)
        self._drop(size)

    def _drop(self, size: int) -> None:
        self._bytes = self._bytes[size:]
        del self._owners[:size]


def render(vocabulary: Vocabulary, ids: Sequence[int]) -> Rendered:
    """The whole output at once: what a :class:`StreamDecoder` ends with."""
    decoder = StreamDecoder(vocabulary)
    for token_id in ids:
        decoder.push(token_id)
    return decoder.finish()
