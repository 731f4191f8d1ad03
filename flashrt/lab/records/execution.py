"""The whole evidence of one execution: what was consumed, what happened and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar

from flashrt.lab.records.base import Record, Says
from flashrt.lab.records.event import CacheEvent
from flashrt.lab.records.experiment import ExecutionSpec
from flashrt.lab.records.observation import ExperimentObservation
from flashrt.lab.records.request import RequestArrival
from flashrt.lab.records.response import ApiError, RunOutcome
from flashrt.lab.records.scenario import CustomerInteraction, Placement, ResourceGraph
from flashrt.lab.records.system import KVResidencySystemConfig
from flashrt.lab.records.work import CacheComputation, TokenSelection
from flashrt.record import ExperimentExecution, ModelArtifact, Workload


@dataclass(frozen=True, slots=True)
class LedgerRow(Record):
    """How the positions of one request came to be."""

    request_id: Annotated[str, Says("The request.")]
    reused_positions: Annotated[int, Says("Taken from a cached state.", "positions", least=0)]
    recomputed_positions: Annotated[
        int, Says("Computed though they had been before.", "positions", least=0)
    ]
    computed_positions: Annotated[int, Says("Computed for the first time.", "positions", least=0)]
    transferred_positions: Annotated[
        int, Says("Moved over a link before use.", "positions", least=0)
    ]
    transferred_bytes: Annotated[int, Says("Bytes moved for it.", "bytes", least=0)]
    latency_us: Annotated[Fraction, Says("From arrival to its end.", "virtual us", least=0)]


@dataclass(frozen=True)
class DesignReference(Record):
    """Which arm of which design was executed."""

    name: Annotated[str, Says("The design's name.")]
    arm: Annotated[str, Says("The arm's name.")]
    digest: Annotated[str, Says("Digest of the design's file.")]


@dataclass(frozen=True)
class ExecutionRecord(Record):
    """One completed execution, joined: frozen, and sealed by its digest where it is stored."""

    document: ClassVar[str] = "flashrt.lab.execution/1"
    execution: Annotated[ExperimentExecution, Says("Which execution, on what, by which code.")]
    design: Annotated[DesignReference | None, Says("The design's arm; none: of no design.")]
    specification: Annotated[ExecutionSpec, Says("The setup that was consumed.")]
    model_artifact: Annotated[ModelArtifact, Says("The model that ran.")]
    system: Annotated[KVResidencySystemConfig, Says("The settings that were resolved.")]
    workload: Annotated[Workload[RequestArrival], Says("The requests that were consumed.")]
    customers: Annotated[CustomerInteraction | None, Says("The actions that were consumed.")]
    graph: Annotated[ResourceGraph | None, Says("The resources that were assumed.")]
    placement: Annotated[Placement | None, Says("Where work went in the graph.")]
    events: Annotated[tuple[CacheEvent, ...], Says("What happened, in order.")]
    computations: Annotated[tuple[CacheComputation, ...], Says("The forward work that ran.")]
    selections: Annotated[tuple[TokenSelection, ...], Says("The choices made.")]
    outcomes: Annotated[tuple[RunOutcome, ...], Says("What came of each request.")]
    errors: Annotated[tuple[ApiError, ...], Says("Operations rejected that made no outcome.")]
    ledger: Annotated[tuple[LedgerRow, ...], Says("Positions reused, computed and moved.")]
    observations: Annotated[tuple[ExperimentObservation, ...], Says("What was captured.")] = ()
    digest: Annotated[str | None, Says("Digest of all the rest; none before it is sealed.")] = None
