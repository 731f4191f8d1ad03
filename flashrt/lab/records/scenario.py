"""Inputs of a scenario: hypothetical resources, where work goes, and what customers do."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar

from flashrt.lab.records.base import Checked, Says
from flashrt.lab.records.request import InferenceRequest


@dataclass(frozen=True)
class ResourceNode(Checked):
    """One place that can compute, with the memory next to it. Rates are assumptions."""

    node_id: Annotated[str, Says("The node's name, unique in its graph.")]
    memory_bytes: Annotated[int, Says("Local memory for KV states.", "bytes", least=0)]
    compute_flops_per_us: Annotated[
        Fraction, Says("Rate of arithmetic.", "FLOPs/virtual us", above=0)
    ]
    memory_bytes_per_us: Annotated[
        Fraction, Says("Rate of memory traffic.", "bytes/virtual us", above=0)
    ]


@dataclass(frozen=True)
class ResourceLink(Checked):
    """One direction between two nodes; the way back is another link with capacity of its own."""

    link_id: Annotated[str, Says("The link's name, unique in its graph.")]
    source: Annotated[str, Says("Node that bytes leave.")]
    target: Annotated[str, Says("Node that bytes reach.")]
    bytes_per_us: Annotated[Fraction, Says("Rate.", "bytes/virtual us", above=0)]
    latency_us: Annotated[Fraction, Says("Start of a transfer.", "virtual us", least=0)]


@dataclass(frozen=True)
class ResourceGraph(Checked):
    """Hypothetical nodes and directed links."""

    nodes: Annotated[tuple[ResourceNode, ...], Says("The places.")]
    links: Annotated[tuple[ResourceLink, ...], Says("The directed links.")] = ()


@dataclass(frozen=True)
class Placement(Checked):
    """Where requests are computed and where states that are not in use wait, and by which links."""

    device_node: Annotated[str, Says("Node that computes and holds active states.")]
    host_node: Annotated[str, Says("Node that holds states which are not in use.")]
    to_device: Annotated[tuple[str, ...], Says("Links from the host node to the device, in order.")]
    to_host: Annotated[tuple[str, ...], Says("Links from the device node to the host, in order.")]


@dataclass(frozen=True)
class SubmitAction(Checked):
    """A customer sends a request; each makes one invocation."""

    tagged: ClassVar[bool] = True
    time_us: Annotated[Fraction, Says("When.", "virtual us", least=0)]
    request_id: Annotated[str, Says("The request's name, unique in its scenario.")]
    request: Annotated[InferenceRequest, Says("What is asked for.")]


@dataclass(frozen=True)
class ConsumeAction(Checked):
    """A customer has read so many tokens of a response since it began."""

    tagged: ClassVar[bool] = True
    time_us: Annotated[Fraction, Says("When.", "virtual us", least=0)]
    request_id: Annotated[str, Says("The request.")]
    consumed_tokens: Annotated[int, Says("Tokens read since the beginning.", "tokens", least=0)]


@dataclass(frozen=True)
class CancelAction(Checked):
    """A customer no longer wants a response; work that was begun may still end."""

    tagged: ClassVar[bool] = True
    time_us: Annotated[Fraction, Says("When.", "virtual us", least=0)]
    request_id: Annotated[str, Says("The request.")]


@dataclass(frozen=True)
class CustomerInteraction(Checked):
    """What customers do, on the scenario's clock; at equal times the order here decides."""

    actions: Annotated[
        tuple[SubmitAction | ConsumeAction | CancelAction, ...], Says("The actions in order.")
    ]
