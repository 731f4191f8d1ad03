"""``flashrt lab prepare``: a corpus to a trained, identified artifact."""

from __future__ import annotations

import math
import platform
import random
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from flashrt.lab.model.artifact import FAMILY, LoadedArtifact
from flashrt.lab.model.layout import architecture
from flashrt.lab.model.preparation import Preparation
from flashrt.lab.model.weights import WeightsFile
from flashrt.lab.tokenizer import Tokenizer
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    from flashrt.host.corpus import Corpus

STEPS = 1200
CACHE = Path(".flashrt")
HELD_OUT_DOCUMENTS = 20
_HELD_OUT_WINDOWS = 64


@dataclass(frozen=True)
class Size:
    """What is trained: dimensions, vocabulary at most, and windows a step."""

    layers: int = 4
    width: int = 64
    heads: int = 4
    context: int = 256
    vocabulary: int = 1024
    batch: int = 16


def prepare(
    out_folder: Path,
    *,
    seed: int = 0,
    steps: int = STEPS,
    progress: Callable[[int, int, float], None] | None = None,
    cache: Path = CACHE,
) -> LoadedArtifact:
    """Train the tiny GPT on the Brown corpus and write it to ``out_folder``.

    ``progress`` gets the steps done, all steps, and the loss in nats a token; ``cache`` is where a
    fetched corpus lives. Takes a few CPU minutes. Raises :class:`Refusal`: EMPTY_CORPUS or DIGEST
    for the corpus, CONFLICT for fewer steps than one, STORAGE for the folder.
    """
    from flashrt.host.corpus import load_corpus

    made = prepare_from(load_corpus("brown", cache), Size(), seed, steps, progress)
    made.save(out_folder)
    return made


def prepare_from(
    corpus: Corpus,
    size: Size,
    seed: int,
    steps: int,
    progress: Callable[[int, int, float], None] | None = None,
) -> LoadedArtifact:
    """As :func:`prepare`, from any corpus, writing nothing. One document in five at most, and 20
    at most, are held out: drawn by the seed, seen neither by the tokenizer nor in training.
    """
    if steps < 1:
        raise Refusal(Reason.CONFLICT, f"{steps} steps train nothing", do="ask for one or more")
    from flashrt.lab.model.exchanges import exchanges
    from flashrt.lab.model.train import Schedule, held_out_loss, train

    count = min(HELD_OUT_DOCUMENTS, len(corpus.documents) // 5)
    if count < 1:
        what = f"{len(corpus.documents)} documents: none can be held out of fewer than five"
        raise Refusal(Reason.EMPTY_CORPUS, what, subject=corpus.name)
    chosen = set(random.Random(seed).sample([d.id for d in corpus.documents], count))
    seen = [d.text for d in corpus.documents if d.id not in chosen]
    unseen = [d.text for d in corpus.documents if d.id in chosen]
    tokenizer = Tokenizer.build((text.encode() for text in seen), size.vocabulary)
    shape = architecture(
        layers=size.layers,
        width=size.width,
        heads=size.heads,
        context=size.context,
        vocabulary=len(tokenizer),
    )
    judged = exchanges(tokenizer, unseen, size.context)
    schedule = Schedule(steps, size.batch)
    data = exchanges(tokenizer, seen, size.context)
    weights = train(shape, data, schedule, seed, progress)
    loss = held_out_loss(shape, weights, judged, _HELD_OUT_WINDOWS)
    density = len(judged.ids) / judged.source_bytes
    preparation = Preparation(
        corpus=corpus.source,
        corpus_digest=corpus.digest,
        seed=seed,
        steps=steps,
        batch=schedule.batch,
        window=size.context,
        learning_rate=schedule.learning_rate,
        documents=len(seen),
        held_out_documents=count,
        held_out_loss=round(loss, 6),
        held_out_bits_per_byte=round(loss / math.log(2) * density, 6),
        python=platform.python_version(),
        torch=metadata.version("torch"),
        flashrt=metadata.version("flashrt"),
    )
    return LoadedArtifact(FAMILY, shape, WeightsFile.pack(weights), tokenizer, preparation)
