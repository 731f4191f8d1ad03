"""Logical parts of a system that have a boundary here and no mechanism of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from flashrt.lab.records.base import Record, Says


@dataclass(frozen=True)
class RequestEndpoint(Record):
    """Accepts requests and publishes responses."""

    dispatch: Annotated[Literal["in_process"], Says("How a request reaches the system.")] = (
        "in_process"
    )
    streaming: Annotated[bool, Says("Whether tokens are published one by one.")] = True


@dataclass(frozen=True)
class InferenceEngine(Record):
    """Coordinates scheduling, execution and decoding for one artifact."""

    parts: Annotated[tuple[str, ...], Says("Owners that it is composed of.")] = (
        "RequestScheduling",
        "Tokenizer",
        "ModelExecution",
        "Decoding",
    )


@dataclass(frozen=True)
class StateManager(Record):
    """Coordinates lifetime, residency and movement of inference state."""

    parts: Annotated[tuple[str, ...], Says("Owners that it is composed of.")] = (
        "KVState",
        "KVCache",
        "StateTransfer",
    )


@dataclass(frozen=True)
class ResourcePool(Record):
    """The compute, memory and links that execution is held against."""

    parts: Annotated[tuple[str, ...], Says("Owners that it is composed of.")] = (
        "ResourceGraph",
        "ComputeService",
    )


@dataclass(frozen=True)
class ComputeKernel(Record):
    """An implementation of one bounded operation on one device."""

    operation: Annotated[str, Says("The operation that it implements.")]
    precision: Annotated[str, Says("What it computes in.")]


@dataclass(frozen=True)
class DeviceRuntime(Record):
    """What launches device work and manages its memory and order."""

    services: Annotated[tuple[str, ...], Says("What it offers to model execution.")] = (
        "launch",
        "memory",
        "synchronization",
    )


@dataclass(frozen=True)
class CollectiveCommunication(Record):
    """A communication operation over a declared group."""

    operation: Annotated[str, Says("The operation, such as all-reduce.")]
    participants: Annotated[tuple[str, ...], Says("Nodes that take part.")]
