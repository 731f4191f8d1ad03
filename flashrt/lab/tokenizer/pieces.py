"""Bytes to pieces: split into words, then merge neighbours in the order they were learnt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from flashrt.lab.tokenizer.vocabulary import FIRST_PIECE, LONGEST_WORD, Vocabulary

# Every byte falls in exactly one alternative: letters, digits, other bytes, white space.
_WORD = re.compile(rb" ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+")
_REMEMBERED = 65536


def words(data: bytes) -> Iterator[bytes]:
    """Consecutive parts of ``data``, each 1 to 64 bytes; merges never cross from one to the next.

    A longer word is cut every 64 bytes.
    """
    for match in _WORD.finditer(data):
        for start in range(match.start(), match.end(), LONGEST_WORD):
            yield data[start : min(start + LONGEST_WORD, match.end())]


def merged(word: list[int], pair: tuple[int, int], new: int) -> list[int]:
    """``word`` with every occurrence of ``pair``, from the left, replaced by ``new``."""
    out: list[int] = []
    index = 0
    while index < len(word):
        if index + 1 < len(word) and (word[index], word[index + 1]) == pair:
            out.append(new)
            index += 2
        else:
            out.append(word[index])
            index += 1
    return out


@dataclass(frozen=True)
class Pieces:
    """The encoder of a vocabulary. It remembers words, at most 65,536 of them."""

    vocabulary: Vocabulary
    _single: dict[int, int] = field(init=False, repr=False, compare=False)
    _made: dict[tuple[int, int], int] = field(init=False, repr=False, compare=False)
    _words: dict[bytes, tuple[int, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        single = {value: FIRST_PIECE + i for i, value in enumerate(self.vocabulary.single)}
        first = FIRST_PIECE + len(single)
        made = {pair: first + i for i, pair in enumerate(self.vocabulary.merges)}
        object.__setattr__(self, "_single", single)
        object.__setattr__(self, "_made", made)
        object.__setattr__(self, "_words", {})

    def of_word(self, word: bytes) -> tuple[int, ...]:
        """Token IDs of one word (one of :func:`words`)."""
        known = self._words.get(word)
        if known is None:
            known = self._merge(word)
            if len(self._words) >= _REMEMBERED:
                self._words.clear()
            self._words[word] = known
        return known

    def _merge(self, word: bytes) -> tuple[int, ...]:
        ids: list[int] = []
        for value in word:
            own = self._single.get(value)
            ids.extend(self.vocabulary.triple(value) if own is None else (own,))
        while len(ids) > 1:
            # A merge learnt earlier has the lower ID and is done first.
            new, pair = min(
                (self._made.get(pair, len(self.vocabulary)), pair) for pair in pairwise(ids)
            )
            if new == len(self.vocabulary):
                break
            ids = merged(ids, pair, new)
        return tuple(ids)
