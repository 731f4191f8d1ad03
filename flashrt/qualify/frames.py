"""The frames that a qualification judges on: drawn from held-out documents only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flashrt.qualify.request import Budget

if TYPE_CHECKING:
    from flashrt.host.frames import Frame

CACHE = Path(".flashrt")


def judged_positions(budget: Budget, rows: int, context: int) -> int:
    """Positions judged in each frame: whole steps of ``rows``, at most the cache's length."""
    steps = max(1, -(-budget.positions // rows))
    return min(steps, context // rows) * rows


def judged_frames(
    tokenizer: object,
    *,
    frames: str,
    held_out: tuple[str, ...],
    budget: Budget,
    rows: int,
    context: int,
    seed: int,
) -> list[Frame]:
    """``budget.windows`` frames of one token more than the judged positions (the last target).

    ``held_out`` names the documents that calibration never saw; frames come from these alone.
    Raises :class:`Refusal` (EMPTY_CORPUS) when they hold too little text.
    """
    from flashrt.host.corpus import Corpus, load_corpus
    from flashrt.host.frames import text_frames

    corpus = load_corpus(frames, CACHE)
    wanted = set(held_out)
    documents = tuple(d for d in corpus.documents if d.id in wanted)
    window = judged_positions(budget, rows, context) + 1
    judged = Corpus(corpus.name, corpus.source, documents)
    split = text_frames(
        tokenizer, judged, window=window, samples=budget.windows, held_out=0, seed=seed
    )
    return list(split.calibration)
