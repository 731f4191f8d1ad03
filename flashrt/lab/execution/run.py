"""Running a setup for real, and the frozen record of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from flashrt.lab.execution.binding import Binding, execution_id
from flashrt.lab.execution.file import CONSUMED, StoredExecution, sealed
from flashrt.lab.execution.setup import Setup
from flashrt.lab.records import (
    ExecutionBackend,
    ExecutionRecord,
    ExperimentExecution,
    ModelArtifact,
    VirtualClock,
)

if TYPE_CHECKING:
    from pathlib import Path

    from flashrt.lab.engine import Execution, Executor
    from flashrt.lab.model import LoadedArtifact

NO_ONE = ("flashrt", "lab", "run")


class Model(Protocol):
    """A model as a run needs it: who it is, what it computes on, and something that executes it."""

    @property
    def identity(self) -> ModelArtifact:
        """The artifact's identity, as records name it."""

    @property
    def backend(self) -> ExecutionBackend:
        """What computes and stores, as observed here."""

    def executor(self) -> Executor:
        """What runs the model's positions, one execution after another."""


@dataclass(frozen=True)
class LabModel:
    """The committed artifact, or one that ``flashrt lab prepare`` made, on this machine's CPU."""

    identity: ModelArtifact
    backend: ExecutionBackend
    loaded: LoadedArtifact

    def executor(self) -> Executor:
        """The row-serial executor over the artifact. Nothing is remembered between executions."""
        from flashrt.lab.engine import ModelExecutor

        return ModelExecutor.of(self.loaded)


def load_model(folder: Path | None = None) -> LabModel:
    """The artifact of a folder, or the committed one. Raises as ``LoadedArtifact.load``."""
    from flashrt.lab.execution.provenance import backend
    from flashrt.lab.model import LoadedArtifact

    loaded = LoadedArtifact.load(folder)
    return LabModel(loaded.identity, backend(loaded.identity.dtype), loaded)


def command_of(setup: Setup) -> tuple[str, ...]:
    """The command that a run of a design's arm is; it holds no path."""
    design = setup.design
    return NO_ONE if design is None else (*NO_ONE, design.name, "--arm", design.arm)


def execute(setup: Setup, model: Model, command: tuple[str, ...] | None = None) -> StoredExecution:
    """Run a setup and seal what happened. Equal setups under equal bindings give equal digests.

    Nothing in the record is drawn and nothing is measured: its clock is virtual, and its identity
    is of its content. Raises :class:`Refusal` as the engine does for a scenario that it refuses as
    a whole.
    """
    from flashrt.lab.engine import Engine

    engine = Engine(
        setup.system,
        model.executor(),
        setup.workload,
        setup.customers,
        setup.graph,
        placement=setup.placement,
    )
    evidence = engine.run()
    return sealed(_record(setup, model, evidence, command or command_of(setup)))


def _record(
    setup: Setup, model: Model, evidence: Execution, command: tuple[str, ...]
) -> ExecutionRecord:
    from flashrt.lab.execution.provenance import provenance, tool_version

    header = ExperimentExecution(
        id="",
        tool_version=tool_version(),
        command=command,
        backend=model.backend,
        processes=0,
        virtual=VirtualClock(evidence.started_us, evidence.ended_us),
        provenance=provenance(),
    )
    made = ExecutionRecord(
        execution=header,
        design=setup.design,
        specification=setup.spec,
        model_artifact=model.identity,
        system=setup.system,
        workload=setup.workload,
        customers=setup.customers,
        graph=setup.graph,
        placement=setup.placement,
        events=tuple(evidence.events),
        computations=tuple(evidence.computations),
        selections=tuple(evidence.selections),
        outcomes=tuple(evidence.outcomes),
        errors=tuple(evidence.errors),
        ledger=tuple(evidence.ledger),
    )
    return identified(made)


def identified(record: ExecutionRecord) -> ExecutionRecord:
    """A record whose execution's id is of what it consumed and of what it was bound to."""
    body = record.record()
    name = execution_id(consumed_of(body), Binding.of(record))
    return replace(record, execution=replace(record.execution, id=name))


def consumed_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a record's body says that was consumed."""
    return {name: body[name] for name in CONSUMED}
