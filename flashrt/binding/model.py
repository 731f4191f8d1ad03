"""What a binding says, as frozen records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from flashrt.binding.address import Address
from flashrt.document.problem import InputError, Problem
from flashrt.document.yaml_source import Document
from flashrt.spec.model import StructureSpec
from flashrt_runtime.reason import Reason


class Coverage(Enum):
    """Who owns one segment of a hot path."""

    STRUCTURE = "structure"
    STATE_REGION = "state_region"
    HOST_STAGE = "host_stage"
    CONTROL = "control"


class Adapter(Enum):
    """How a region is reached that lies inside its member's forward; NONE: the member is it."""

    NONE = "none"
    ATTENTION_PROCESSOR = "attention_processor"
    ATTENTION_INTERFACE = "attention_interface"
    TWO_WAY_ATTENTION = "two_way_attention"
    PACKED_VISION_QKV = "packed_vision_qkv"
    GATED_DELTA_SLOTS = "gated_delta_slots"


@dataclass(frozen=True)
class Held:
    """Where one slot is held: a state-dict key (template), its layout, what it may be tied to."""

    at: str
    layout: str
    tied: str = ""

    def record(self) -> dict[str, str]:
        """JSON form; ``tied`` only where the binding says so."""
        tied = {"tied": self.tied} if self.tied else {}
        return {"at": self.at, "layout": self.layout, **tied}


@dataclass(frozen=True)
class PointAddress:
    """Where one calibration point sits: a module path (template) and the side observed."""

    module: str
    capture: str


@dataclass(frozen=True)
class RegionBinding:
    """One structure as one host realises it; every path may hold ``{i}``.

    ``inputs`` and ``outputs`` say where the host holds the boundary's tensors; they are empty where
    the members' own first argument and results are the boundary. ``unseen`` are outputs that the
    host never shows, each with why: they cannot be proven. ``indices`` is the first one and
    the step to the next, where layers of one list differ; None for every index.
    """

    name: str
    spec: StructureSpec
    spec_digest: str
    module: str
    members: Mapping[str, str]
    variant: Mapping[str, str]
    weights: Mapping[str, Held]
    points: Mapping[str, PointAddress]
    dtype: str
    adapter: Adapter = Adapter.NONE
    inputs: Mapping[str, Address] = field(default_factory=dict)
    outputs: Mapping[str, Address] = field(default_factory=dict)
    unseen: Mapping[str, str] = field(default_factory=dict)
    indices: tuple[int, int] | None = None

    def at(self, indices: Sequence[int]) -> list[int]:
        """Those of the tree's indices that the region has."""
        if self.indices is None:
            return list(indices)
        first, step = self.indices
        return [i for i in indices if i >= first and (i - first) % step == 0]

    def record(self) -> dict[str, Any]:
        """JSON form; what the binding does not say is left out."""
        adapter = {} if self.adapter is Adapter.NONE else {"adapter": self.adapter.value}
        sides = {"inputs": self.inputs, "outputs": self.outputs}
        first, step = self.indices or (0, 1)
        some = {"indices": {"from": first, "step": step}} if self.indices else {}
        return {
            "structure": self.spec.id,
            "spec_digest": self.spec_digest,
            **adapter,
            "module": self.module,
            **some,
            "members": dict(self.members),
            "variant": dict(self.variant),
            "weights": {slot: held.record() for slot, held in self.weights.items()},
            "points": {
                name: {"module": p.module, "capture": p.capture} for name, p in self.points.items()
            },
            "boundary": {
                "dtype": self.dtype,
                **{
                    side: {name: address.record() for name, address in held.items()}
                    for side, held in sides.items()
                    if held
                },
                **({"unseen": dict(self.unseen)} if self.unseen else {}),
            },
        }


@dataclass(frozen=True)
class Segment:
    """One segment of a hot path: who owns it, what it covers and in which stages it runs.

    ``gap`` names the structure that the catalog lacks, where the host keeps a stage for want of it.
    """

    name: str
    coverage: Coverage
    covers: tuple[str, ...]
    stages: tuple[str, ...]
    regions: tuple[str, ...] = ()
    state: str = ""
    cadence: str = ""
    owner: str = ""
    gap: str = ""

    def record(self) -> dict[str, Any]:
        """JSON form; fields that the classification does not have are left out."""
        optional = {
            "regions": list(self.regions),
            "state": self.state,
            "cadence": self.cadence,
            "owner": self.owner,
            "gap": self.gap,
        }
        return {
            "classification": self.coverage.value,
            "covers": list(self.covers),
            "stages": list(self.stages),
            **{name: value for name, value in optional.items() if value},
        }


@dataclass(frozen=True)
class Entry:
    """Where the host takes a window or the number of steps, and what it means there."""

    at: str
    meaning: str


@dataclass(frozen=True)
class PipelineBinding:
    """The stages a host has and who owns each name of its hot path.

    ``windows`` are the spec's windows (noise, latent, observation) by name; ``steps`` is where the
    number of steps of a fixed schedule comes from.
    """

    spec: StructureSpec
    spec_digest: str
    stages: tuple[str, ...]
    hot_path: tuple[str, ...]
    segments: tuple[Segment, ...]
    windows: Mapping[str, Entry] = field(default_factory=dict)
    steps: Entry | None = None

    def record(self) -> dict[str, Any]:
        """JSON form; windows and steps only where the binding says them."""
        windows = {n: {"at": w.at, "meaning": w.meaning} for n, w in self.windows.items()}
        steps = {"from": self.steps.at, "meaning": self.steps.meaning} if self.steps else {}
        return {
            "structure": self.spec.id,
            "spec_digest": self.spec_digest,
            "stages": list(self.stages),
            "hot_path": list(self.hot_path),
            "segments": {s.name: s.record() for s in self.segments},
            **({"windows": windows} if windows else {}),
            **({"steps": steps} if steps else {}),
        }


@dataclass(frozen=True)
class HostRange:
    """The host a binding is for: family, loader and package versions (comma-separated ranges)."""

    family: str
    loader: str
    packages: Mapping[str, str]


@dataclass(frozen=True)
class Provisional:
    """Why a binding could not be run against its host, and where its facts were published."""

    reason: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class BindingSpec:
    """One host's binding. ``digest`` is ``sha256:…`` of the file's bytes.

    ``notices`` says which recorded spec digests are no longer in the catalog: reported, and never
    used to resolve. ``provisional`` is set where no installable package ships the host's class:
    such a binding is never counted as covered.
    """

    name: str
    digest: str
    host: HostRange
    regions: Mapping[str, RegionBinding]
    pipeline: PipelineBinding | None
    notices: tuple[Problem, ...]
    document: Document = field(repr=False, compare=False)
    provisional: Provisional | None = None

    def manifest(self) -> dict[str, Any]:
        """JSON form for exporters and releases: paths in the module tree, slots, points, digests.

        Free of kernels, architectures and file-system paths.
        """
        why = self.provisional
        return {
            "name": self.name,
            "digest": self.digest,
            **(
                {"provisional": {"reason": why.reason, "sources": list(why.sources)}} if why else {}
            ),
            "host": {
                "family": self.host.family,
                "loader": self.host.loader,
                "packages": dict(self.host.packages),
            },
            "regions": {name: region.record() for name, region in self.regions.items()},
            "pipeline": self.pipeline.record() if self.pipeline else None,
        }

    def refuse(self, path: str, what: str, do: str, reason: Reason = Reason.BINDING) -> InputError:
        """An error at a path of this binding's file."""
        return InputError(
            self.document.file, self.document.line(path), path, what, do, reason=reason
        )
