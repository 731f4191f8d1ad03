"""ModelArtifact: the identity of weights, architecture and tokenizer, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModelArtifact:
    """An immutable inference artifact by its digests; the payload itself lies elsewhere.

    Digests are ``sha256:<64 hexadecimal digits>``. ``checkpoint_digest`` is over every tensor's
    name, dtype, shape and bytes, ``architecture_digest`` over the config and every module's class
    (``None`` in old records). ``tokenizer_digest`` is ``None`` without a tokenizer. ``parameters``
    counts numbers, ``dtype`` is what they were loaded in, and ``provenance`` says how the artifact
    came to be, without a path of this machine.
    """

    name: str
    family: str
    checkpoint_digest: str
    architecture_digest: str | None
    dtype: str
    tokenizer_digest: str | None
    parameters: int
    provenance: str

    def record(self) -> dict[str, Any]:
        """JSON form; ``architecture_digest`` is left out where there is none."""
        head = {
            "name": self.name,
            "family": self.family,
            "checkpoint_digest": self.checkpoint_digest,
        }
        if self.architecture_digest is not None:
            head["architecture_digest"] = self.architecture_digest
        return {
            **head,
            "dtype": self.dtype,
            "tokenizer_digest": self.tokenizer_digest,
            "parameters": self.parameters,
            "provenance": self.provenance,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> ModelArtifact:
        """The inverse of :meth:`record`."""
        return cls(
            name=record["name"],
            family=record["family"],
            checkpoint_digest=record["checkpoint_digest"],
            architecture_digest=record.get("architecture_digest"),
            dtype=record["dtype"],
            tokenizer_digest=record["tokenizer_digest"],
            parameters=record["parameters"],
            provenance=record["provenance"],
        )
