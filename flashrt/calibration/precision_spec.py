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
_MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class ModelPrecisionSpec:
    """Every planned seam by id, and the checkpoint, binding, specs and data that it holds for.

    ``model_artifact``, ``binding`` (``None`` for discovered seams) and ``structures`` are the
    records of the calibration receipt; ``calibration`` is the receipt's digest where there is one,
    ``overrides`` that of the file of stated scales. Reading what :meth:`to_bytes` wrote gives the
    same bytes.
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
        infinity does not), and :class:`Refusal` (DIGEST) for what was changed after it was sealed.
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
