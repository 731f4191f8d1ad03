"""What a qualification starts from: the host's seams, held-out documents, and a calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flashrt.document.canonical import canonical_bytes, sha256
from flashrt.qualify.request import CellRequest, require_forms
from flashrt.record import FrameRecord, ModelArtifact, Workload
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    from flashrt.calibration import Calibration
    from flashrt.doors.exclusive import Reads
    from flashrt.host import Host
    from flashrt.host.corpus import Corpus
    from flashrt.host.frames import Split
    from flashrt.host.seams import HostSeams
    from flashrt.receipt.store import Store
    from flashrt.scheme.overrides import Overrides
    from flashrt.scheme.plan import Plan

CACHE = Path(".flashrt")
PIPELINE = "autoregressive_decode_pipeline@1"
SAMPLES, HELD_OUT, WINDOW = 32, 16, 128
LOOKED_AT = 4  # forwards in which nothing else may read what a norm returns


class Tell(Protocol):
    """Where progress goes."""

    def __call__(self, stage: str, done: int = 0, total: int = 0, note: str = "") -> None:
        """``done`` of ``total`` units of ``stage`` are behind us."""


@dataclass(frozen=True)
class Prepared:
    """One host, its seams and its text, ready to be planned for.

    ``held_out`` names the documents that no calibration frame came from. ``reads`` says who reads
    what each norm returns, by the norm's module; it is empty where no request asked for chains.
    """

    host_reference: str
    frames_reference: str
    artifact: ModelArtifact
    found: HostSeams
    workload: Workload[FrameRecord]
    held_out: tuple[str, ...]
    calibration: Calibration | None
    seed: int
    overrides: Overrides | None = None
    reads: Mapping[str, Reads] = field(default_factory=dict)

    def plan(self, request: CellRequest) -> dict[str, Any]:
        """The sealed plan of one request.

        Raises :class:`Refusal` where the scheme cannot be, or where chains were asked for and none
        can be negotiated.
        """
        from flashrt.scheme.plan import plan

        made = plan(
            request.scheme,
            self.found.seams,
            self.calibration,
            device="cpu",
            rows=request.rows,
            dtype=self.artifact.dtype,
            overrides=self.overrides,
        )
        made = self._chained(made, request) if request.chains else made
        return made.record(
            model_artifact=self.artifact.record(),
            binding=self.binding,
            binding_manifest=self.manifest,
        )

    def _chained(self, made: Plan, request: CellRequest) -> Plan:
        """The plan with its producers and chains; what was looked at in vain is among refused."""
        from flashrt.doors.chains import Where, settle

        dtype = self.artifact.dtype
        where = Where("cpu", request.rows, lambda seam: dtype)
        found = settle(made, self.found.emitters, where, self.reads)
        if not found.chains:
            nothing = Because(Reason.FORM, f"{made.scheme} has no form that emits for its readers")
            why = found.refused[0] if found.refused else nothing
            what = f"no chain could be negotiated: {why.detail}"
            do = f"qualify {request.scheme}@{request.phase}:{request.rows} without chains"
            raise Refusal(why.reason, what, subject=why.subject or request.label, do=do)
        return replace(found.plan, refused=(*made.refused, *found.refused))

    @property
    def binding(self) -> dict[str, str]:
        """Identity of the binding; of the manifest below where seams were discovered."""
        if self.found.binding is not None:
            return dict(self.found.binding)
        return {"name": "discovered", "digest": sha256(canonical_bytes(self.manifest))}

    @property
    def manifest(self) -> dict[str, Any]:
        """The binding's manifest. A causal LM without one of its own is a plain decode pipeline."""
        if self.found.binding is not None:
            return dict(self.found.manifest)
        structures = sorted({seam.structure for seam in self.found.seams})
        return {
            "name": "discovered",
            "structures": structures,
            "pipeline": {"structure": PIPELINE},
        }


def prepare(
    host: str,
    frames: str,
    requests: Sequence[CellRequest],
    store: Store,
    *,
    calibration: str | None,
    seed: int,
    tell: Tell,
    overrides: Path | None = None,
) -> Prepared:
    """Load the host, find its seams, split the text, and find or make the calibration.

    ``calibration`` is a digest in the store; without one, a receipt of the store that fits this
    host and this text is used, and one is made when none fits and a requested scheme needs it.
    ``overrides`` is a file of stated scales; a cell whose scheme does not use one is refused.
    Raises what loading, discovery and calibration raise, before anything is measured.
    """
    from flashrt.host import load
    from flashrt.host.corpus import load_corpus
    from flashrt.host.frames import text_frames
    from flashrt.host.seams import seams_of
    from flashrt.scheme.overrides import Overrides

    require_forms(requests)
    given = None if overrides is None else Overrides.read(overrides)
    tell("frames", note=frames)
    corpus = load_corpus(frames, CACHE)  # refused before a host is loaded, which takes longer
    tell("load", note=host)
    loaded = load(host, cache=CACHE)
    _fits(loaded, requests)
    found = seams_of(loaded)
    split = text_frames(
        loaded.tokenizer,
        corpus,
        window=WINDOW,
        samples=SAMPLES,
        held_out=HELD_OUT,
        seed=seed,
    )
    source = Source(loaded, found, corpus, split)
    made = _calibration(source, requests, store, digest=calibration, tell=tell)
    reads = source.reads() if any(request.chains for request in requests) else {}
    workload = made.body["workload"] if made else split.workload()
    return Prepared(
        host_reference=host,
        frames_reference=frames,
        artifact=loaded.artifact,
        found=found,
        workload=Workload.from_record(workload, FrameRecord.from_record),
        held_out=_documents(workload["held_out"]),
        calibration=made,
        seed=seed,
        overrides=given,
        reads=reads,
    )


@dataclass(frozen=True)
class Source:
    """What a calibration is made from, or must have been made from: host, seams and text."""

    host: Host
    found: HostSeams
    corpus: Corpus
    split: Split

    def reads(self) -> dict[str, Reads]:
        """Who reads what the norms return, seen in forwards over real text."""
        from flashrt.doors.chains import reads_of
        from flashrt.host.forward import forward

        host, found = self.host, self.found
        runs = [
            lambda frame=frame: forward(host.model, frame.token_ids[None], f"frame {frame.id}")
            for frame in self.split.calibration[:LOOKED_AT]
        ]
        return reads_of(host.model, found.emitters, found.seams, runs)

    def require_text(self, workload: dict[str, Any]) -> None:
        """Raise :class:`Refusal` (EMPTY_CORPUS, DIGEST) unless the corpus holds these very frames.

        What is held out is held out by name, and another folder may use the same names.
        """
        from flashrt.host.frames import frames_by_id

        recorded = [*workload["frames"], *workload["held_out"]]
        names = [frame["id"] for frame in recorded]
        cut = frames_by_id(self.host.tokenizer, self.corpus, names, workload["window"])
        for frame, record in zip(cut, recorded, strict=True):
            if frame.digest != record["digest"]:
                raise Refusal(
                    Reason.DIGEST,
                    "the calibration saw other text under this name",
                    subject=frame.id,
                    do="give the corpus it was made with, or calibrate again",
                )


def _fits(loaded: Host, requests: Sequence[CellRequest]) -> None:
    """Refuse a context that the host has no positions for. Raises :class:`Refusal` (SHAPE)."""
    most = getattr(loaded.model.config, "max_position_embeddings", None)
    for request in requests:
        if isinstance(most, int) and request.context > most:
            raise Refusal(
                Reason.SHAPE,
                f"a context of {request.context} tokens; the host has positions for {most}",
                subject=request.label,
                do=f"pass --context {most} or less",
            )


def _documents(frames: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Documents of frames, whose ids are ``<document>#<first token>``."""
    return tuple(sorted({frame["id"].rpartition("#")[0] for frame in frames}))


def _needed(requests: Sequence[CellRequest], found: HostSeams) -> bool:
    from flashrt.scheme.needs import check_statistics
    from flashrt.scheme.registry import get, resolve

    schemes = {resolve(request.scheme, "cpu") for request in requests}
    return any(check_statistics(get(name), found.seams) for name in sorted(schemes))


def _calibration(
    source: Source,
    requests: Sequence[CellRequest],
    store: Store,
    *,
    digest: str | None,
    tell: Tell,
) -> Calibration | None:
    from flashrt.calibration import calibrate
    from flashrt.calibration.receipt import load_from_store

    loaded, found, split = source.host, source.found, source.split
    expected = {
        "model_artifact": loaded.model_artifact,
        "binding": found.binding,
        "seams": found.seams,
        "specs": found.specs,
    }
    if digest is not None:
        given = load_from_store(store, digest, **expected)
        source.require_text(given.body["workload"])
        return given
    if not _needed(requests, found):
        return None
    for body in store.list("calibration"):
        if body["workload"]["name"] != split.corpus or body["workload"]["seed"] != split.seed:
            continue
        try:
            fitting = load_from_store(store, body["digest"], **expected)
            source.require_text(body["workload"])
        except Refusal:
            continue  # made for another host, spec or text; one that fits is looked for
        return fitting
    made = calibrate(
        loaded.model,
        found.seams,
        split.calibration,
        workload=split.workload(),
        model_artifact=loaded.model_artifact,
        specs=found.specs,
        binding=found.binding,
        seed=split.seed,
        tell=tell,
    )
    made.save(store)
    return made
