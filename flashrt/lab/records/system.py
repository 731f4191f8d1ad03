"""The settings of the inference system, each group with its own owner."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

from flashrt.lab.records.base import Checked, Says


@dataclass(frozen=True)
class RequestSchedulingConfig(Checked):
    """How many requests may be active; the others wait, first come first served."""

    max_active_requests: Annotated[int, Says("Requests active at once.", "requests", least=1)]


@dataclass(frozen=True)
class KVCacheConfig(Checked):
    """Logical budgets for KV states, and what is kept when a request ends."""

    device_kv_bytes: Annotated[int, Says("Budget of KV states on the device.", "bytes", least=0)]
    host_kv_bytes: Annotated[int, Says("Budget of KV states on the host.", "bytes", least=0)]
    retention_policy: Annotated[
        Literal["none", "exact_prefix_lru", "exact_final_lru"],
        Says(
            "What an ended request leaves: nothing, its prompt but the last position, or all that"
            " it ran; whole prefixes, the least recently used dropped first."
        ),
    ]


@dataclass(frozen=True)
class StateTransferConfig(Checked):
    """A hypothetical link: a transfer takes the latency plus its bytes over the rate."""

    link_bytes_per_us: Annotated[Fraction, Says("Rate of the link.", "bytes/virtual us", above=0)]
    link_latency_us: Annotated[Fraction, Says("Start of a transfer.", "virtual us", least=0)]


@dataclass(frozen=True)
class ComputeServiceConfig(Checked):
    """Hypothetical rates: work takes the longer of its operations and its memory traffic."""

    compute_flops_per_us: Annotated[
        Fraction, Says("Rate of arithmetic.", "FLOPs/virtual us", above=0)
    ]
    memory_bytes_per_us: Annotated[
        Fraction, Says("Rate of memory traffic.", "bytes/virtual us", above=0)
    ]


@dataclass(frozen=True)
class ModelExecutionConfig(Checked):
    """How forward work is done: over the whole prefix each time, or from a cached state."""

    implementation: Annotated[
        Literal["cached", "full_prefix"], Says("Whether a state is continued or computed anew.")
    ] = "cached"


@dataclass(frozen=True)
class SystemCeilings(Checked):
    """What the system as a whole supports, whatever a request asks for; none: no ceiling."""

    max_requests: Annotated[
        int | None, Says("Requests that one execution accepts.", "requests", least=1)
    ] = None
    max_output_tokens: Annotated[
        int | None, Says("Largest budget that a request may ask for.", "tokens", least=1)
    ] = None
    publication_buffer_tokens: Annotated[
        int | None, Says("Published tokens not yet consumed that are held.", "tokens", least=1)
    ] = None


@dataclass(frozen=True)
class KVResidencySystemConfig(Checked):
    """The configured system: separately owned settings, composed."""

    scheduling: Annotated[RequestSchedulingConfig, Says("Which requests may be active.")]
    kv_cache: Annotated[KVCacheConfig, Says("Where KV states may be, and what is kept.")]
    transfer: Annotated[StateTransferConfig, Says("What moving a state costs.")]
    compute_service: Annotated[ComputeServiceConfig, Says("What computing costs.")]
    execution: Annotated[ModelExecutionConfig, Says("How forward work is done.")] = (
        ModelExecutionConfig()
    )
    ceilings: Annotated[SystemCeilings, Says("What the whole system supports.")] = SystemCeilings()
