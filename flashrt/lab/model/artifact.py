"""A loaded artifact: manifest, weights and tokenizer of one folder, held against each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from flashrt.document.atomic import write_atomic
from flashrt.document.canonical import canonical_bytes, digest_of, read_json, seal, sha256
from flashrt.document.problem import InputError
from flashrt.document.read import read_regular
from flashrt.lab.model.layout import architecture, stages
from flashrt.lab.model.preparation import Preparation
from flashrt.lab.model.weights import FILE, PRECISION, WeightsFile
from flashrt.lab.records import ModelArchitecture, ModelArtifact, ModelWeights
from flashrt.lab.tokenizer import Tokenizer
from flashrt_runtime.reason import Reason, Refusal

MANIFEST = "manifest.json"
FAMILY = "tiny_gpt"
SCHEMA = "flashrt.lab.model_artifact/1"
_WEIGHTS_LIMIT = 256 * 1024 * 1024


def packaged() -> Path:
    """The folder of the artifact that flashrt ships."""
    return Path(str(resources.files("flashrt.lab") / "artifact" / FAMILY))


@dataclass(frozen=True)
class LoadedArtifact:
    """The whole inference payload; ``identity`` is its lightweight reference."""

    name: str
    architecture: ModelArchitecture
    weights: WeightsFile
    tokenizer: Tokenizer
    preparation: Preparation

    @classmethod
    def load(cls, path: Path | None = None) -> LoadedArtifact:
        """Read a folder that ``save`` wrote; ``None`` is the packaged artifact.

        Raises :class:`InputError` for a manifest that is none, and (DIGEST) where manifest,
        weights and tokenizer do not belong together.
        """
        folder = packaged() if path is None else path
        source = str(folder / MANIFEST)
        body = read_json(folder / MANIFEST)
        do = "prepare the artifact again"
        if body.get("schema") != SCHEMA:
            raise InputError(source, 1, "$.schema", f"{SCHEMA} was expected", do)
        if body.get("digest") != digest_of(body):
            what = "the digest is not that of the manifest"
            raise InputError(source, 1, "$.digest", what, do, reason=Reason.DIGEST)
        try:
            shape = ModelArchitecture.from_record(body["architecture"])
            preparation = Preparation.from_record(body["preparation"])
            name = str(body["identity"]["name"])
        except (KeyError, TypeError, Refusal) as error:
            raise InputError(source, 1, "$", f"not a manifest: {error}", do) from error
        # Every layer has stages: a manifest of 8 MiB may not ask for a billion of them.
        if shape.layers > len(shape.stages) or shape.stages != stages(shape.layers):
            what = "the stages are not those that the executors do"
            raise InputError(source, 1, "$.architecture.stages", what, do)
        data = read_regular(folder / FILE, _WEIGHTS_LIMIT)
        made = cls(name, shape, WeightsFile(data), Tokenizer.load(folder), preparation)
        made.weights.stacked(shape, str(folder / FILE))
        told = made.manifest()
        for key in sorted(told.keys() | body.keys() - {"digest"}):
            if told.get(key) != body.get(key):
                what = "the files beside the manifest are not the ones that it names"
                raise InputError(source, 1, f"$.{key}", what, do, reason=Reason.DIGEST)
        return made

    @classmethod
    def random(cls, seed: int = 0, *, context: int = 256, layers: int = 4) -> LoadedArtifact:
        """An untrained artifact with a small vocabulary, for tests: the same for the same seed."""
        from flashrt.lab.model.initial import initial_weights

        tokenizer = Tokenizer.build([b"the cat sat on the mat, and the hat that the cat had sat"])
        shape = architecture(
            layers=layers, width=64, heads=4, context=context, vocabulary=len(tokenizer)
        )
        weights = WeightsFile.pack(initial_weights(shape, seed))
        return cls(f"{FAMILY}_random", shape, weights, tokenizer, Preparation.untrained(seed))

    def save(self, folder: Path) -> None:
        """Write the three files; the manifest last. Raises :class:`Refusal` (STORAGE)."""
        write_atomic(folder / FILE, self.weights.data)
        self.tokenizer.save(folder)
        write_atomic(folder / MANIFEST, canonical_bytes(seal(self.manifest())) + b"\n")

    def manifest(self) -> dict[str, Any]:
        """JSON form of everything but the payloads, without its digest."""
        return {
            "schema": SCHEMA,
            "identity": self.identity.record(),
            "architecture": self.architecture.record(),
            "weights": self.tensors.record(),
            "weights_sha256": self.weights.sha256,
            "preparation": self.preparation.record(),
        }

    @cached_property
    def tensors(self) -> ModelWeights:
        """Every weight tensor by identity."""
        return self.weights.identity(self.architecture)

    @cached_property
    def identity(self) -> ModelArtifact:
        """Digests of weights (by the names of a module tree), architecture and tokenizer."""
        from flashrt_runtime.identity import checkpoint_digest

        state = self.weights.state_dict(self.architecture)
        return ModelArtifact(
            name=self.name,
            family=FAMILY,
            checkpoint_digest=checkpoint_digest(state.items()),
            architecture_digest=sha256(canonical_bytes(self.architecture.record())),
            dtype=PRECISION,
            tokenizer_digest=self.tokenizer.manifest_sha256,
            parameters=sum(tensor.numel() for tensor in state.values()),
            provenance=self.preparation.sentence,
        )
