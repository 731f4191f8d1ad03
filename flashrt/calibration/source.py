"""Hosts and frames as a person names them: any host, and frames of text or of a robot."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    from flashrt.host.corpus import Corpus
    from flashrt.host.load import Host

ROBOT, TINY = "lerobot:", "tiny:"
KINDS = "brown, text:FOLDER or lerobot:FOLDER"


class Split(Protocol):
    """Calibration and held-out frames of one source; nothing is on both sides."""

    @property
    def calibration(self) -> tuple[Any, ...]:
        """Frames to calibrate with."""

    @property
    def held_out(self) -> tuple[Any, ...]:
        """Frames to judge with."""

    def workload(self) -> dict[str, Any]:
        """The Workload record."""


@dataclass(frozen=True)
class Drawn:
    """A split, and how the host runs one of its frames."""

    split: Split
    run: Callable[[Any], object]


@dataclass(frozen=True)
class _Without:
    """A split whose record says what was excluded."""

    split: Split
    excluded: tuple[str, ...]

    @property
    def calibration(self) -> tuple[Any, ...]:
        return self.split.calibration

    @property
    def held_out(self) -> tuple[Any, ...]:
        return self.split.held_out

    def workload(self) -> dict[str, Any]:
        return {**self.split.workload(), "excluded": list(self.excluded)}


def host_of(reference: str, cache: Path) -> Host:
    """What :func:`flashrt.host.load` takes, or ``tiny:NAME``, whose weights are drawn.

    Raises :class:`Refusal` (HOST) for a tiny host without a binding: nothing says what its seams
    are called.
    """
    from flashrt.host.load import Host, load

    if not reference.startswith(TINY):
        return load(reference, cache=cache)
    from flashrt.host.tiny import build
    from flashrt.record import ModelArtifact
    from flashrt_runtime.identity import architecture_digest, checkpoint_digest

    tiny = build(reference.removeprefix(TINY))
    if tiny.binding is None:
        what = "this tiny host has no binding, so that it has no points to calibrate"
        raise Refusal(Reason.HOST, what, subject=reference)
    provenance = f"{tiny.source}, small, weights drawn from a fixed seed"
    artifact = ModelArtifact(
        name=f"tiny-{tiny.name}",
        family=str(getattr(tiny.model.config, "model_type", tiny.name)),
        checkpoint_digest=checkpoint_digest(tiny.model.state_dict().items()),
        architecture_digest=architecture_digest(tiny.model),
        dtype="float32",
        tokenizer_digest=None,
        parameters=sum(p.numel() for p in tiny.model.parameters()),
        provenance=provenance,
    )
    return Host(artifact.name, tiny.model, None, artifact, tiny.binding, cache, (provenance,))


def frames_of(
    reference: str,
    host: Host,
    *,
    window: int = 128,
    samples: int = 32,
    held_out: int = 16,
    seed: int = 0,
    exclude: Collection[str] = (),
    cache: Path,
) -> Drawn:
    """Draw frames for a host from ``brown``, ``text:FOLDER`` or ``lerobot:FOLDER``.

    ``window`` is tokens in a frame of text and does not concern a robot's. ``exclude`` names what
    is never drawn: documents of text, frames or episodes of a robot. Raises :class:`Refusal`:
    HOST when the host does not take frames of this kind, CONFLICT, EMPTY_CORPUS, and what reading
    the source raises.
    """
    from flashrt.calibration.feed import require_robot, robot_feed, text_feed

    if reference.startswith(ROBOT) and len(reference) > len(ROBOT):
        from flashrt.calibration.lerobot import open_dataset, robot_frames

        require_robot(host)  # before a dataset is read
        dataset = open_dataset(Path(reference.removeprefix(ROBOT)).expanduser())
        robot = robot_frames(
            dataset, samples=samples, held_out=held_out, seed=seed, exclude=exclude
        )
        return Drawn(robot, robot_feed(host, *robot.moments()))
    from flashrt.host.corpus import load_corpus
    from flashrt.host.frames import text_frames

    require_source(reference)
    run = text_feed(host)
    corpus = _without(load_corpus(reference, cache), exclude)
    split: Split = text_frames(
        host.tokenizer, corpus, window=window, samples=samples, held_out=held_out, seed=seed
    )
    return Drawn(_Without(split, tuple(sorted(set(exclude)))) if exclude else split, run)


def require_source(reference: str) -> None:
    """Refuse what names no frames, while nothing is loaded yet.

    Raises :class:`Refusal`: CONFLICT for what is no source, EMPTY_CORPUS for a folder that is not
    there or holds no file of its kind.
    """
    kind, _, rest = reference.partition(":")
    robot = reference.startswith(ROBOT) and bool(rest)
    if not robot and not _is_text(reference):
        raise Refusal(Reason.CONFLICT, "not a source of frames", subject=reference, do=KINDS)
    folder = Path(rest).expanduser()
    if rest and not folder.is_dir():
        what = "no such folder"
    elif kind == "text" and next(folder.rglob("*.txt"), None) is None:
        what = "there is no .txt file in it"
    else:
        return
    raise Refusal(Reason.EMPTY_CORPUS, what, subject=str(folder), do="check the path")


def _is_text(reference: str) -> bool:
    kind, _, rest = reference.partition(":")
    return reference == "brown" or (kind == "text" and bool(rest))


def _without(corpus: Corpus, exclude: Collection[str]) -> Corpus:
    from flashrt.host.corpus import Corpus

    unknown = sorted(set(exclude) - {document.id for document in corpus.documents})
    if unknown:
        what = "the corpus has no such document to exclude"
        raise Refusal(Reason.CONFLICT, what, subject=unknown[0])
    kept = tuple(d for d in corpus.documents if d.id not in set(exclude))
    return Corpus(corpus.name, corpus.source, kept)
