"""What an experiment sets: one control at a time, composed, and asked as a question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from flashrt.lab.records.base import Checked, Record, Says
from flashrt.lab.records.request import RequestArrival
from flashrt.lab.records.scenario import CustomerInteraction, Placement, ResourceGraph
from flashrt.record import Workload


@dataclass(frozen=True)
class ExperimentSpec(Checked):
    """One assignment: a control by its path, and the value it is given.

    A path leads from the system's settings to one field, such as ``kv_cache.device_kv_bytes``.
    Exact values are integers or ``"p/q"``.
    """

    control: Annotated[str, Says("Path of the control.")]
    setting: Annotated[
        int | str, Says("What it is set to, in the unit of the control.", "control's")
    ]
    subject: Annotated[str, Says("The owner whose mechanism or artifact is changed.")]
    related: Annotated[tuple[str, ...], Says("Other owners that the change concerns.")] = ()


@dataclass(frozen=True)
class ExecutionSpec(Record):
    """Assignments that are used together: one setup, never a sweep."""

    controls: Annotated[tuple[ExperimentSpec, ...], Says("One assignment for each control.")]


@dataclass(frozen=True)
class DesignArm(Record):
    """One setup of a design: what it adds to the settings that all of its arms share."""

    name: Annotated[str, Says("The arm's name, unique in its design.")]
    settings: Annotated[ExecutionSpec, Says("The controls that tell it from the other arms.")]


@dataclass(frozen=True)
class MissingControl(Record):
    """A control that a question wants and nobody has."""

    control: Annotated[str, Says("Its path, were it there.")]
    why: Annotated[str, Says("What could be asked with it.")]


@dataclass(frozen=True)
class AbstractionContract(Record):
    """What stands for what, and what may not be concluded."""

    executed: Annotated[tuple[str, ...], Says("What is executed for real.")]
    assumed: Annotated[tuple[str, ...], Says("What is declared and never measured.")]
    absent: Annotated[tuple[str, ...], Says("What is not represented at all.")]
    concludes: Annotated[str, Says("What a result of this design is about.")]


@dataclass(frozen=True)
class ExperimentDesign(Record):
    """A named question, the setups that answer it, and what cannot be set yet."""

    document: ClassVar[str] = "flashrt.lab.design/1"
    name: Annotated[str, Says("The design's name; its file has the same.")]
    question: Annotated[str, Says("The one question that it answers.")]
    subjects: Annotated[tuple[str, ...], Says("Owners that the question is about.")]
    settings: Annotated[ExecutionSpec, Says("The controls that all of its arms share.")]
    arms: Annotated[tuple[DesignArm, ...], Says("The setups, the baseline first.")]
    missing_controls: Annotated[
        tuple[MissingControl, ...], Says("Controls that the question wants and nobody has.")
    ]
    contract: Annotated[AbstractionContract, Says("What bounds its conclusions.")]
    evidence: Annotated[tuple[str, ...], Says("Digests or tests that back what it says.")]
    workload: Annotated[Workload[RequestArrival], Says("The customer input of every setup.")]
    customers: Annotated[CustomerInteraction | None, Says("What customers do besides.")] = None
    graph: Annotated[ResourceGraph | None, Says("Resources, where the question has any.")] = None
    placement: Annotated[Placement | None, Says("Where work goes in the graph.")] = None

    def assignments(self) -> tuple[ExperimentSpec, ...]:
        """Every assignment in it: the shared ones, then those of each arm."""
        own = (one for arm in self.arms for one in arm.settings.controls)
        return (*self.settings.controls, *own)
