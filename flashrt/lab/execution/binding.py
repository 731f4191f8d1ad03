"""What an execution was bound to: code, interpreter, commit, backend and model, as observed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flashrt.document.canonical import canonical_bytes, sha256
from flashrt.lab.execution.difference import differences
from flashrt.lab.records import ExecutionRecord, ExperimentExecution, ModelArtifact
from flashrt_runtime.reason import Because, Reason

_REASONS = {
    "tool_version": Reason.SOFTWARE,
    "provenance": Reason.SOFTWARE,
    "backend": Reason.DEVICE,
    "model_artifact": Reason.CHECKPOINT,
}


@dataclass(frozen=True)
class Binding:
    """What a run was bound to. Another one is no corruption: it is another run.

    Equal setups under equal bindings give equal records, bit for bit; under another binding they
    may, and whether they do is worth knowing.
    """

    execution: ExperimentExecution
    model_artifact: ModelArtifact

    def record(self) -> dict[str, Any]:
        """JSON form of the parts that bind."""
        header = self.execution.record()
        bound = {key: header.get(key) for key in ("tool_version", "provenance", "backend")}
        return bound | {"model_artifact": self.model_artifact.record()}

    def against(self, other: Binding) -> Iterator[Because]:
        """Where another binding differs from this one, with the reason of each part."""
        for one in differences(self.record(), other.record()):
            part = one.path.removeprefix("$.").partition(".")[0]
            detail = f"{one.first} there, {one.second} here"
            yield Because(_REASONS[part], detail, one.path.removeprefix("$."))

    @classmethod
    def of(cls, record: ExecutionRecord) -> Binding:
        """What a recorded execution was bound to."""
        return cls(record.execution, record.model_artifact)


def execution_id(consumed: Mapping[str, Any], binding: Binding) -> str:
    """The identity of an execution before it runs: what it consumes, and what it is bound to."""
    return sha256(canonical_bytes({"consumed": consumed, "binding": binding.record()}))
