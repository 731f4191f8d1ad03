"""What one execution consumes: a whole spec and the customers' input. It holds no result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from flashrt.lab.execution.spec import compose, resolve
from flashrt.lab.records import (
    CustomerInteraction,
    DesignReference,
    ExecutionRecord,
    ExecutionSpec,
    KVResidencySystemConfig,
    Placement,
    RequestArrival,
    ResourceGraph,
    SubmitAction,
    Workload,
)
from flashrt_runtime.reason import Reason, Refusal


@dataclass(frozen=True)
class Setup:
    """One setup, and the input that it is applied to.

    Raises :class:`Refusal` as :func:`~flashrt.lab.execution.spec.resolve`, and CONFLICT where no
    request is made or two have one name, where the graph does not hold what is placed in it, and
    where its rates are not those that the spec sets: one of the two would be overridden.
    """

    spec: ExecutionSpec
    workload: Workload[RequestArrival]
    customers: CustomerInteraction | None = None
    graph: ResourceGraph | None = None
    placement: Placement | None = None
    design: DesignReference | None = None

    def __post_init__(self) -> None:
        _require_agreement(self.system, self.graph, self.placement)
        names = list(self.requests())
        if not names:
            raise Refusal(Reason.CONFLICT, "no request is made", subject="workload")
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            what = f"several requests are named {', '.join(map(repr, twice))}"
            raise Refusal(Reason.CONFLICT, what, subject="workload", do="name each once")

    @property
    def system(self) -> KVResidencySystemConfig:
        """The system that the spec describes."""
        return resolve(self.spec)

    def requests(self) -> Iterator[str]:
        """The name of every request that is made, in order."""
        return requests_of(self.workload, self.customers)

    def added(self, more: ExecutionSpec) -> Setup:
        """The same with more controls, of no design. Raises as :func:`compose` does."""
        spec = compose(self.spec, more)
        return Setup(spec, self.workload, self.customers, self.graph, self.placement)

    @classmethod
    def of(cls, record: ExecutionRecord) -> Setup:
        """What a recorded execution consumed."""
        return cls(
            record.specification,
            record.workload,
            record.customers,
            record.graph,
            record.placement,
            record.design,
        )


def requests_of(
    workload: Workload[RequestArrival], customers: CustomerInteraction | None
) -> Iterator[str]:
    """The name of every request that arrives or is submitted, in order."""
    yield from (one.request_id for one in workload.requests)
    if customers is not None:
        submitted = (a for a in customers.actions if isinstance(a, SubmitAction))
        yield from (one.request_id for one in submitted)


def _require_agreement(
    system: KVResidencySystemConfig, graph: ResourceGraph | None, placement: Placement | None
) -> None:
    """Raise :class:`Refusal` where spec and graph say different things of one place or path."""
    from flashrt.lab.engine.topology import topology

    placed = topology(system, graph, placement)
    service, transfer, links = system.compute_service, system.transfer, placed.to_device.links
    started = sum((link.latency_us for link in links), Fraction(0))
    rates = {
        "compute_service.compute_flops_per_us": (
            service.compute_flops_per_us,
            placed.compute_flops_per_us,
        ),
        "compute_service.memory_bytes_per_us": (
            service.memory_bytes_per_us,
            placed.memory_bytes_per_us,
        ),
        "transfer.link_bytes_per_us": (
            transfer.link_bytes_per_us,
            min(link.bytes_per_us for link in links),
        ),
        "transfer.link_latency_us": (transfer.link_latency_us, started),
    }
    for path, (said, there) in rates.items():
        if said != there:
            what = f"the spec sets {said}, and what is placed in the graph has {there}"
            raise Refusal(Reason.CONFLICT, what, subject=path, do=f"set it to {there}")
