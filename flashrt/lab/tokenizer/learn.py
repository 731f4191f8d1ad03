"""Pieces learnt from a corpus: byte-pair merges, most frequent first, ties by the lower IDs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise

from flashrt.lab.tokenizer.pieces import merged, words
from flashrt.lab.tokenizer.vocabulary import FIRST_PIECE, Vocabulary
from flashrt_runtime.reason import Reason, Refusal

_RARE = 2  # a pair seen once is no pattern


def _pairs(word: list[int]) -> Iterable[tuple[int, int]]:
    return pairwise(word)


def learn(texts: Iterable[bytes], size: int) -> Vocabulary:
    """A vocabulary of at most ``size`` tokens, the same for the same texts in any order.

    Raises :class:`Refusal` (CONFLICT) when the tags, the triples and the corpus's own bytes are
    already more than ``size``, and EMPTY_CORPUS when there is no text.
    """
    counts: Counter[bytes] = Counter()
    for text in texts:
        counts.update(words(text))
    single = tuple(sorted({value for word in counts for value in word}))
    if not single:
        raise Refusal(Reason.EMPTY_CORPUS, "there is no text to learn pieces from")
    room = size - FIRST_PIECE - len(single)
    if room < 0:
        what = f"{size} tokens do not hold {FIRST_PIECE} tags and digits and {len(single)} bytes"
        raise Refusal(Reason.CONFLICT, what, do="ask for a larger vocabulary")
    return Vocabulary(single, tuple(_merges(counts, single, room)))


def _merges(
    counts: Counter[bytes], single: tuple[int, ...], room: int
) -> Iterable[tuple[int, int]]:
    ids = {value: FIRST_PIECE + i for i, value in enumerate(single)}
    pieces = [bytes([value]) for value in single]
    have = set(pieces)
    spelt = [([ids[value] for value in word], count) for word, count in sorted(counts.items())]
    seen: Counter[tuple[int, int]] = Counter()
    where: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for index, (word, count) in enumerate(spelt):
        for pair in _pairs(word):
            seen[pair] += count
            where[pair].add(index)
    while room:
        best = min(seen, key=lambda pair: (-seen[pair], pair), default=None)
        if best is None or seen[best] < _RARE:
            return
        piece = pieces[best[0] - FIRST_PIECE] + pieces[best[1] - FIRST_PIECE]
        if piece in have:  # reached another way already: one piece, one ID
            del seen[best]
            continue
        new = FIRST_PIECE + len(pieces)
        pieces.append(piece)
        have.add(piece)
        room -= 1
        yield best
        for index in sorted(where.pop(best)):
            word, count = spelt[index]
            for pair in _pairs(word):
                seen[pair] -= count
            word = merged(word, best, new)
            spelt[index] = (word, count)
            for pair in _pairs(word):
                seen[pair] += count
                where[pair].add(index)
        seen.pop(best, None)
