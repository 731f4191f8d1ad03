"""ModelPrecisionSpec: what a planned model is stored and computed in, with where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashrt.calibration.origin import require_origin
from flashrt.calibration.precision import (
    DataIdentity,
    PointPrecision,
    Scale,
    SeamPrecision,
    Source,
    WeightPrecision,
    conflict,
)
from flashrt.document.atomic import write_atomic
from flashrt.document.canonical import canonical_bytes, object_of, seal
from flashrt.document.read import read_regular
from flashrt.document.schema import require
from flashrt.document.yaml_source import Document, lines_of
from flashrt_runtime.reason import Reason, Refusal

__all__ = [
    "DataIdentity",
    "ModelPrecisionSpec",
    "PointPrecision",
    "Scale",
    "SeamPrecision",
    "Source",
    "WeightPrecision",
]

SCHEMA = "flashrt.precision_spec/1"
# What ``auto`` resolves to, or a person asks for: the schemes that exist.
SCHEMES = (
    "none",
    "bf16_structural",
    "fp16_weight",
    "w8a16_decode",
    "w4a16_decode",
    "int8_static",
    "int8_static_keep_outliers",
    "fp8_static",
    "fp8_static_keep_outliers",
)
_MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class ModelPrecisionSpec:
    """Every planned seam by id, and the checkpoint, binding, specs and data that it holds for.

    ``model_artifact``, ``binding`` (``None`` for discovered seams) and ``structures`` are the
    records of the calibration receipt; ``calibration`` is the receipt's digest where there is one,
    ``overrides`` that of the file of stated scales. Reading what :meth:`to_bytes` wrote gives the
    same bytes.

    Raises :class:`Refusal` (CONFLICT) for parts that contradict each other: a calibrated point with
    neither receipt nor data, or data without one; an overridden point without the file; a seam of a
    structure that is not among ``structures``, or one of them twice; a scheme that is not resolved.
    """

    scheme: str
    model_artifact: Mapping[str, Any]
    binding: Mapping[str, str] | None
    structures: tuple[Mapping[str, Any], ...]
    calibration: str | None
    overrides: str | None
    workload: DataIdentity | None
    seams: Mapping[str, SeamPrecision]
    software: Mapping[str, str]

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise conflict(f"{self.scheme!r} is no resolved scheme; one of {', '.join(SCHEMES)}")
        named = [f"{one['name']}@{one['version']}" for one in self.structures]
        if len(set(named)) != len(named):
            raise conflict(f"a structure is there twice: {', '.join(sorted(named))}")
        for name, seam in self.seams.items():
            if seam.structure not in named:
                raise conflict(f"{seam.structure} is not among the structures", name)
        sources = {point.source for seam in self.seams.values() for point in seam.points.values()}
        measured = Source.CALIBRATED in sources
        if measured and self.calibration is None and self.workload is None:
            raise conflict("a point is calibrated, by no calibration and from no data")
        if self.workload is not None and not measured:
            raise conflict("there is data behind the scales, and no point is calibrated")
        if Source.OVERRIDE in sources and self.overrides is None:
            raise conflict("a point's scale was stated, and no file of stated scales is named")

    def record(self) -> dict[str, Any]:
        """The sealed artefact."""
        return seal(
            {
                "schema": SCHEMA,
                "scheme": self.scheme,
                "model_artifact": dict(self.model_artifact),
                "binding": dict(self.binding) if self.binding else None,
                "structures": [dict(structure) for structure in self.structures],
                "calibration": self.calibration,
                "overrides": self.overrides,
                "workload": self.workload.record() if self.workload else None,
                "seams": {name: seam.record() for name, seam in self.seams.items()},
                "software": dict(self.software),
            }
        )

    @property
    def digest(self) -> str:
        """Digest of the artefact."""
        return str(self.record()["digest"])

    @property
    def bound(self) -> dict[str, SeamPrecision]:
        """The seams that bind, by id."""
        return {name: seam for name, seam in self.seams.items() if seam.impl}

    def to_bytes(self) -> bytes:
        """Canonical bytes."""
        return canonical_bytes(self.record())

    def save(self, path: Path) -> None:
        """Write it whole or not at all. Raises :class:`Refusal` (STORAGE)."""
        write_atomic(path, self.to_bytes())

    @classmethod
    def from_record(cls, record: Mapping[str, Any], *, file: str = "") -> ModelPrecisionSpec:
        """The inverse of :meth:`record`.

        Raises :class:`InputError` for what does not satisfy the schema (a scale of 0, −1, NaN or
        infinity does not), and :class:`Refusal`: CONFLICT for what contradicts itself, DIGEST for
        what was changed after it was sealed.
        """
        return _read(Document(file or "precision spec", dict(record), "", {}))

    @classmethod
    def load(cls, path: Path) -> ModelPrecisionSpec:
        """:meth:`from_record` from a file; messages name its line and path."""
        data = read_regular(path, _MAX_BYTES)
        value = object_of(data, str(path))
        return _read(Document(str(path), value, "", lines_of(data)))

    def require_for(
        self,
        *,
        model_artifact: Mapping[str, Any],
        binding: Mapping[str, str] | None,
        specs: Mapping[str, str],
    ) -> None:
        """Raise :class:`Refusal` unless it was made for this host, binding and these specs.

        As a calibration receipt's: CHECKPOINT, DTYPE, BINDING, STALE_SPEC.
        """
        require_origin(self.record(), model_artifact=model_artifact, binding=binding, specs=specs)


def _read(document: Document) -> ModelPrecisionSpec:
    body = document.value
    require(body, "precision_spec", document)
    workload = body["workload"]
    spec = ModelPrecisionSpec(
        scheme=body["scheme"],
        model_artifact=body["model_artifact"],
        binding=body["binding"],
        structures=tuple(body["structures"]),
        calibration=body["calibration"],
        overrides=body["overrides"],
        workload=DataIdentity.from_record(workload) if workload else None,
        seams={name: SeamPrecision.from_record(seam) for name, seam in body["seams"].items()},
        software=body["software"],
    )
    # Its own bytes, not those read: canonical JSON writes a large float without a point.
    if body["digest"] != spec.digest:
        raise Refusal(
            Reason.DIGEST,
            "the precision spec was changed after it was sealed",
            subject=document.file,
            do="plan again; scales of your own go into an overrides file",
        )
    return spec
