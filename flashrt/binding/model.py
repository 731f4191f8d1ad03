"""What a binding says, as frozen records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

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
    """One structure as one host realises it; every path may hold ``{i}``."""

    name: str
    spec: StructureSpec
    spec_digest: str
    module: str
    members: Mapping[str, str]
    variant: Mapping[str, str]
    weights: Mapping[str, Held]
    points: Mapping[str, PointAddress]
    dtype: str

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "structure": self.spec.id,
            "spec_digest": self.spec_digest,
            "module": self.module,
            "members": dict(self.members),
            "variant": dict(self.variant),
            "weights": {slot: held.record() for slot, held in self.weights.items()},
            "points": {
                name: {"module": p.module, "capture": p.capture} for name, p in self.points.items()
            },
            "boundary": {"dtype": self.dtype},
        }


@dataclass(frozen=True)
class Segment:
    """One segment of a hot path: who owns it, what it covers and in which stages it runs."""

    name: str
    coverage: Coverage
    covers: tuple[str, ...]
    stages: tuple[str, ...]
    regions: tuple[str, ...] = ()
    state: str = ""
    cadence: str = ""
    owner: str = ""

    def record(self) -> dict[str, Any]:
        """JSON form; fields that the classification does not have are left out."""
        optional = {
            "regions": list(self.regions),
            "state": self.state,
            "cadence": self.cadence,
            "owner": self.owner,
        }
        return {
            "classification": self.coverage.value,
            "covers": list(self.covers),
            "stages": list(self.stages),
            **{name: value for name, value in optional.items() if value},
        }


@dataclass(frozen=True)
class PipelineBinding:
    """The stages a host has and who owns each name of its hot path."""

    spec: StructureSpec
    spec_digest: str
    stages: tuple[str, ...]
    hot_path: tuple[str, ...]
    segments: tuple[Segment, ...]

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "structure": self.spec.id,
            "spec_digest": self.spec_digest,
            "stages": list(self.stages),
            "hot_path": list(self.hot_path),
            "segments": {s.name: s.record() for s in self.segments},
        }


@dataclass(frozen=True)
class HostRange:
    """The host a binding is for: family, loader and package versions (comma-separated ranges)."""

    family: str
    loader: str
    packages: Mapping[str, str]


@dataclass(frozen=True)
class BindingSpec:
    """One host's binding. ``digest`` is ``sha256:…`` of the file's bytes.

    ``notices`` says which recorded spec digests are no longer in the catalog: reported, and never
    used to resolve.
    """

    name: str
    digest: str
    host: HostRange
    regions: Mapping[str, RegionBinding]
    pipeline: PipelineBinding | None
    notices: tuple[Problem, ...]
    document: Document = field(repr=False, compare=False)

    def manifest(self) -> dict[str, Any]:
        """JSON form for exporters and releases: paths in the module tree, slots, points, digests.

        Free of kernels, architectures and file-system paths.
        """
        return {
            "name": self.name,
            "digest": self.digest,
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
