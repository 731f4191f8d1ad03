"""Running text as exchanges: sentences in turn said by the user and by the assistant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from flashrt.lab.tokenizer import Tokenizer, Turn
from flashrt_runtime.reason import Reason, Refusal

_SENTENCE = re.compile(r'(?<=[.?!"]) +')


@dataclass(frozen=True)
class Exchanges:
    """``ids`` is one long row of tokens, ``starts`` where windows may begin: at a user's tag, with
    ``window`` + 1 tokens from there on. ``source_bytes`` is how much text the row holds."""

    ids: torch.Tensor
    starts: tuple[int, ...]
    window: int
    source_bytes: int

    def windows(self, starts: Iterable[int]) -> torch.Tensor:
        """``[windows, window + 1]`` token IDs."""
        return torch.stack([self.ids[start : start + self.window + 1] for start in starts])


def turns(text: str) -> Iterator[tuple[Turn, Turn]]:
    """Pairs of neighbouring sentences of a paragraph; an odd one at its end is left out."""
    for paragraph in text.split("\n"):
        sentences = [sentence for sentence in _SENTENCE.split(paragraph) if sentence]
        for said, answered in zip(sentences[::2], sentences[1::2], strict=False):
            yield Turn("user", said), Turn("assistant", answered)


def exchanges(tokenizer: Tokenizer, texts: Iterable[str], window: int) -> Exchanges:
    """Every exchange of every text, in order.

    Raises :class:`Refusal` (EMPTY_CORPUS) when there is not one whole window.
    """
    ids: list[int] = []
    starts: list[int] = []
    size = 0
    for text in texts:
        for pair in turns(text):
            starts.append(len(ids))
            encoding = tokenizer.encode(pair)
            ids.extend(encoding.ids)
            size += encoding.spans[-1][1]
    whole = tuple(start for start in starts if start + window + 1 <= len(ids))
    if not whole:
        what = f"{len(ids)} tokens of exchanges are less than one window of {window + 1}"
        raise Refusal(Reason.EMPTY_CORPUS, what, do="give more text")
    return Exchanges(torch.tensor(ids), whole, window, size)
