"""Frames of text: full-length windows of real documents, calibration and held out kept apart."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt.calibration.sampling import LARGEST_SEED, allocate
from flashrt.document.canonical import sha256
from flashrt.host.copies import require_no_copies
from flashrt.host.corpus import Corpus, TextDocument
from flashrt.record import Drawing, FrameRecord, Workload
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

SAMPLER = "stratified by category x document x position, exact proportional allocation"
_PHRASE = 16
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Frame:
    """``token_ids`` is an int64 tensor [window]: consecutive tokens of one document.

    ``id`` is ``<document>#<first token>``; ``strata`` is (category, document).
    """

    id: str
    document: str
    category: str
    token_ids: torch.Tensor
    digest: str

    @property
    def strata(self) -> tuple[str, str]:
        """Where the frame sits, coarsest first."""
        return (self.category, self.document)

    def record(self) -> dict[str, Any]:
        """JSON form: ``{"id", "digest", "positions"}``."""
        return self.identity.record()

    @property
    def identity(self) -> FrameRecord:
        """The frame's name and content, without its tokens."""
        return FrameRecord(self.id, self.digest, int(self.token_ids.numel()))


@dataclass(frozen=True)
class Split:
    """Calibration and held-out frames of one corpus; no document is on both sides."""

    corpus: str
    source: str
    calibration: tuple[Frame, ...]
    held_out: tuple[Frame, ...]
    window: int
    seed: int

    def workload(self) -> dict[str, Any]:
        """The Workload record."""
        drawing = Drawing(
            name=self.corpus,
            kind="text",
            source=self.source,
            held_out=tuple(frame.identity for frame in self.held_out),
            window=self.window,
            seed=self.seed,
            sampler=SAMPLER,
            split="by document",
        )
        return Workload(tuple(frame.identity for frame in self.calibration), drawing).record()


class _Windows:
    """Documents as windows, tokenised once each and only when they are drawn from."""

    def __init__(self, tokenizer: Any, window: int) -> None:
        self._tokenizer, self.width = tokenizer, window
        self._tokens: dict[str, list[int]] = {}
        self.apart: set[tuple[int, ...]] = set()  # no frame holds one of these runs of tokens

    def tokens(self, document: TextDocument) -> list[int]:
        if document.id not in self._tokens:
            encoded = self._tokenizer(
                document.text, add_special_tokens=False, return_attention_mask=False, verbose=False
            )
            self._tokens[document.id] = list(encoded["input_ids"])
        return self._tokens[document.id]

    def count(self, document: TextDocument) -> int:
        return len(self.tokens(document)) // self.width

    def frame(self, document: TextDocument, start: int) -> Frame:
        import torch

        ids = torch.tensor(self.tokens(document)[start : start + self.width], dtype=torch.int64)
        data = b"".join(int(i).to_bytes(8, "little") for i in ids.tolist())
        name = f"{document.id}#{start}"
        return Frame(name, document.id, document.category, ids, sha256(data))


def split_documents(
    corpus: Corpus, samples: int, held_out: int, seed: int
) -> tuple[list[TextDocument], list[TextDocument]]:
    """Documents for calibration and for judgement, in proportion within every category."""
    groups: dict[str, list[TextDocument]] = {}
    for document in corpus.documents:
        groups.setdefault(document.category, []).append(document)
    total = len(corpus.documents)
    wanted = round(total * held_out / (samples + held_out))
    wanted = min(max(wanted, 1), total - 1) if held_out else 0
    shares = allocate({name: len(group) for name, group in groups.items()}, wanted)
    calibration: list[TextDocument] = []
    judged: list[TextDocument] = []
    for name, group in sorted(groups.items()):
        order = sorted(group, key=lambda d: d.id)
        random.Random(f"{seed}:{name}").shuffle(order)
        judged += order[: shares[name]]
        calibration += order[shares[name] :]
    return calibration, judged


def text_frames(
    tokenizer: Any,
    corpus: Corpus,
    *,
    window: int = 128,
    samples: int = 32,
    held_out: int = 16,
    seed: int = 0,
) -> Split:
    """Draw ``samples`` calibration and ``held_out`` judgement frames of ``window`` tokens each.

    Documents are split first, so no document gives frames to both sides; frames follow the
    categories in proportion and sit at positions spread over the documents. Nothing is padded,
    repeated or joined across documents. Raises :class:`Refusal` (EMPTY_CORPUS) when the corpus
    cannot give that many, (CONFLICT) for numbers that make no sense and for a held-out document
    that is a copy of one calibrated on, in whole or in good part.
    """
    if window < 2 or samples < 1 or held_out < 0 or not 0 <= seed <= LARGEST_SEED:
        raise Refusal(
            Reason.CONFLICT,
            f"window {window}, samples {samples}, held out {held_out}, seed {seed}",
            do="a window has 2 tokens or more, at least one sample is needed, nothing is negative, "
            "a seed is below 2**53",
        )
    if tokenizer is None:
        raise Refusal(Reason.HOST, "the host has no tokenizer, so text has no tokens here")
    if len(corpus.documents) < (2 if held_out else 1):
        raise Refusal(
            Reason.EMPTY_CORPUS,
            f"{len(corpus.documents)} document cannot be on both sides of a split by document",
            subject=corpus.name,
            do="add documents, or ask for no held-out frames",
        )
    windows = _Windows(tokenizer, window)
    for_calibration, for_judgement = split_documents(corpus, samples, held_out, seed)
    used: set[str] = set()
    chosen = _draw(windows, for_calibration, samples, seed, used=used, name=corpus.name)
    windows.apart = _runs(chosen, window)
    judged = _draw(windows, for_judgement, held_out, seed + 1, used=used, name=corpus.name)
    require_no_copies(*(_drawn_from(corpus, frames) for frames in (chosen, judged)))
    return Split(corpus.name, corpus.source, chosen, judged, window, seed)


def _runs(frames: Iterable[Frame], window: int) -> set[tuple[int, ...]]:
    """Half a window's tokens at every offset: what two frames share that overlap in content.

    Empty for windows under 32 tokens, whose halves are phrases that any two texts may share.
    """
    half = window // 2
    if half < _PHRASE:
        return set()
    ids = [frame.token_ids.tolist() for frame in frames]
    return {tuple(row[i : i + half]) for row in ids for i in range(len(row) - half + 1)}


def _drawn_from(corpus: Corpus, frames: Sequence[Frame]) -> list[TextDocument]:
    names = {frame.document for frame in frames}
    return [document for document in corpus.documents if document.id in names]


def _draw(
    windows: _Windows,
    documents: Sequence[TextDocument],
    count: int,
    seed: int,
    *,
    used: set[str],
    name: str,
) -> tuple[Frame, ...]:
    """``count`` frames, no content twice; ``used`` collects the digests already taken."""
    groups: dict[str, list[TextDocument]] = {}
    for document in documents:
        groups.setdefault(document.category, []).append(document)
    sizes = {category: len(group) for category, group in groups.items()}
    frames: list[Frame] = []
    sources = {c: _frames_of(windows, group, seed, c) for c, group in sorted(groups.items())}
    while len(frames) < count and sources:
        open_sizes = {category: sizes[category] for category in sources}
        missing = count - len(frames)
        scale = -(-missing // sum(open_sizes.values()))  # more frames than documents: several each
        shares = allocate({c: n * scale for c, n in open_sizes.items()}, missing)
        for category, share in shares.items():
            taken = 0
            for frame in sources[category] if share else ():
                if frame.digest not in used and windows.apart.isdisjoint(
                    _runs([frame], windows.width)
                ):
                    used.add(frame.digest)
                    frames.append(frame)
                    taken += 1
                if taken == share:
                    break
            if taken < share:
                del sources[category]
    if len(frames) < count:
        raise Refusal(
            Reason.EMPTY_CORPUS,
            f"{count} full windows were asked for and the documents on this side of the split "
            f"hold {len(frames)}",
            subject=name,
            do="add text, shorten the window, or ask for fewer frames",
        )
    return tuple(sorted(frames, key=lambda f: f.id))


def _frames_of(
    windows: _Windows, documents: Sequence[TextDocument], seed: int, category: str
) -> Iterable[Frame]:
    """Every frame of a category: document after document, each visit at another depth.

    Depths follow the golden-ratio sequence, so any number of them covers a document evenly.
    """
    rng = random.Random(f"{seed}:{category}:positions")
    phase = rng.random()
    taken: dict[str, set[int]] = {d.id: set() for d in documents}
    step, left = 0, list(documents)
    while left:
        remaining = []
        for document in left:
            total = windows.count(document)
            free = [w for w in range(total) if w not in taken[document.id]]
            if not free:
                continue
            step += 1
            index = free[int(((phase + step * _GOLDEN) % 1.0) * len(free))]
            taken[document.id].add(index)
            remaining.append(document)
            yield windows.frame(document, index * windows.width)
        left = remaining


def frames_by_id(tokenizer: Any, corpus: Corpus, ids: Iterable[str], window: int) -> list[Frame]:
    """The frames that these ids name, in their order, cut again from the corpus.

    Raises :class:`Refusal` (EMPTY_CORPUS) when a document is gone or is now too short.
    """
    windows = _Windows(tokenizer, window)
    documents = {document.id: document for document in corpus.documents}
    frames = []
    for name in ids:
        key, _, start = name.rpartition("#")
        document = documents.get(key)
        usable = document is not None and start.isascii() and start.isdigit()
        if not usable or int(start) + window > len(windows.tokens(documents[key])):
            raise Refusal(Reason.EMPTY_CORPUS, "the corpus does not hold this frame", subject=name)
        frames.append(windows.frame(documents[key], int(start)))
    return frames
