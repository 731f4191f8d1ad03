"""The calibration receipt: built from a reduction, refused when it was made for something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt.calibration.collect import addresses_of, distinct
from flashrt.calibration.facts import require_coherent
from flashrt.calibration.kinds import Address, Observation, Samples
from flashrt.calibration.origin import (
    require_disjoint,
    require_origin,
    software,
    structure_records,
)
from flashrt.calibration.reduce import CEILING, PointRecord, Reduction, Verdict, reduce
from flashrt.calibration.statistic import AMAX
from flashrt.calibration.summary import summary, warnings
from flashrt.calibration.table import read_samples, table_bytes
from flashrt.document.canonical import canonical_bytes, digest_of, read_json, seal, sha256
from flashrt.document.problem import InputError
from flashrt.document.schema import require
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    from flashrt.receipt.store import Store

SCHEMA = "flashrt.calibration/1"


@dataclass(frozen=True)
class Calibration:
    """A sealed receipt ``body``, the ``table`` of per-sample vectors, and the points reduced."""

    body: dict[str, Any]
    table: bytes
    points: Mapping[tuple[str, str], PointRecord]

    @property
    def digest(self) -> str:
        """The receipt's digest."""
        return str(self.body["digest"])

    @property
    def limit(self) -> float:
        """The scale ceiling: 20 times the median of all points' amax."""
        return float(self.body["ceiling"]["limit"])

    @property
    def summary(self) -> str:
        """One line."""
        return str(self.body["summary"])

    @property
    def warnings(self) -> tuple[Because, ...]:
        """What deserves attention, the percentile first."""
        return tuple(Because.from_record(record) for record in self.body["warnings"])

    def of(self, seam: Seam) -> dict[str, PointRecord]:
        """The seam's points that were measured, by point name."""
        return {n: self.points[(seam.id, n)] for n in seam.points if (seam.id, n) in self.points}

    def save(self, store: Store) -> str:
        """Write table and receipt into a store; returns the receipt's digest."""
        store.put_table(self.table)
        return str(store.put("calibration", self.body))


def seams_digest(seams: Sequence[Seam]) -> str:
    """Digest of which seams, with which points at which addresses, were calibrated."""
    ordered = sorted(seams, key=lambda s: (s.id, s.structure))
    return sha256(canonical_bytes([seam.record() for seam in ordered]))


def build(
    samples: Samples,
    reduction: Reduction,
    *,
    model_artifact: Mapping[str, Any],
    binding: Mapping[str, str] | None,
    seams: Sequence[Seam],
    specs: Mapping[str, str],
    workload: Mapping[str, Any],
    max_samples: int | None,
) -> Calibration:
    """Seal a receipt. It holds no path, no time and no machine: same inputs, same digest.

    Raises :class:`Refusal`: CONFLICT when a calibration frame is held out as well, STATISTIC for
    facts that contradict each other.
    """
    require_disjoint(workload)
    table = table_bytes(samples)
    body = seal(
        {
            "schema": SCHEMA,
            "kind": "calibration",
            "model_artifact": dict(model_artifact),
            "binding": dict(binding) if binding else None,
            "structures": structure_records(specs),
            "seams": len({seam.id for seam in seams}),
            "seams_digest": seams_digest(seams),
            "workload": dict(workload),
            "statistic": AMAX.record(),
            "percentile": {
                "asked": float(reduction.asked),
                "effective": float(reduction.effective),
                "method": "linear",
            },
            "samples": reduction.samples,
            "max_samples": max_samples,
            "ceiling": {
                "factor": CEILING,
                "median": reduction.median,
                "limit": reduction.limit,
            },
            "points": [point.record() for point in reduction.points],
            "warnings": [because.record() for because in warnings(reduction)],
            "summary": summary(reduction, str(workload["name"])),
            "table": sha256(table),
            "software": software(),
        }
    )
    require(body, "calibration_receipt", file="calibration receipt")
    require_coherent(body)  # what is written can be loaded
    return Calibration(body, table, _by_name(reduction))


def _by_name(reduction: Reduction) -> dict[tuple[str, str], PointRecord]:
    return {(p.address.seam, p.address.point): p for p in reduction.points}


def load_receipt(
    source: Path | Mapping[str, Any],
    table: Path | bytes,
    *,
    model_artifact: Mapping[str, Any],
    binding: Mapping[str, str] | None,
    seams: Sequence[Seam],
    specs: Mapping[str, str],
) -> Calibration:
    """A receipt and its table, when they were made for exactly this.

    ``binding`` is ``{"name", "digest"}`` or ``None`` for discovered seams; ``specs`` maps
    ``structure@version`` to spec digests. Raises :class:`InputError` for bytes that are not a
    receipt, and :class:`Refusal`: DIGEST (edited), CHECKPOINT (another model: one weight, the
    config or a module's class is enough), DTYPE, BINDING (another binding or other seams),
    STALE_SPEC, CONFLICT (a held-out frame that was calibrated on, or two points of one name),
    STATISTIC (what does not follow from the table or the seams, or contradicts itself).
    """
    name = str(source) if isinstance(source, Path) else "calibration receipt"
    body = read_json(source) if isinstance(source, Path) else dict(source)
    require(body, "calibration_receipt", file=name)
    if body["digest"] != digest_of(body):
        raise Refusal(
            Reason.DIGEST,
            "the receipt was changed after it was sealed",
            subject=name,
            do="run `flashrt calibrate` again",
        )
    require_origin(body, model_artifact=model_artifact, binding=binding, specs=specs)
    if body["seams_digest"] != seams_digest(seams):
        raise Refusal(Reason.BINDING, "calibrated for other seams or points", subject="seams")
    require_disjoint(body["workload"])
    require_coherent(body)
    distinct(addresses_of(seams))
    try:
        data = table.read_bytes() if isinstance(table, Path) else table
    except OSError as error:
        raise InputError(str(table), 1, "$", error.strerror or str(error)) from error
    if sha256(data) != body["table"]:
        raise Refusal(Reason.DIGEST, "the table is not the one the receipt names", subject=name)
    reduction = _again(body, data)
    if tuple(p.address for p in reduction.points) != addresses_of(seams):
        raise Refusal(Reason.BINDING, "calibrated for other seams or points", subject=name)
    for kept, computed in zip(body["points"], reduction.points, strict=True):
        if kept != computed.record():
            raise Refusal(
                Reason.STATISTIC,
                "the recorded values do not follow from the table",
                subject=computed.address.name,
                do="run `flashrt calibrate` again",
            )
    _same_derived(body, reduction, len({seam.id for seam in seams}))
    return Calibration(body, data, _by_name(reduction))


def load_from_store(store: Store, digest: str, **expected: Any) -> Calibration:
    """:func:`load_receipt` by digest from a store; ``expected`` are its keyword arguments."""
    body = store.get("calibration", digest)
    return load_receipt(body, store.table_path(str(body["table"])), **expected)


def _again(body: Mapping[str, Any], data: bytes) -> Reduction:
    """The reduction that the table gives under the receipt's own percentile."""
    frames = tuple(frame["id"] for frame in body["workload"]["frames"])
    addresses = tuple(
        Address(p["seam"], p["point"], p["module"], p["capture"]) for p in body["points"]
    )
    observed = tuple(_observation(p) for p in body["points"])
    samples = read_samples(data, addresses, frames, observed)
    return reduce(samples, body["percentile"]["asked"])


def _observation(point: Mapping[str, Any]) -> Observation | None:
    facts = point["observed"]
    if facts is None:
        return None
    low, high = facts["rows"]
    return Observation((low, high), facts["width"], facts["dtype"], point["calls"])


def _same_derived(body: Mapping[str, Any], reduction: Reduction, seams: int) -> None:
    most = body["max_samples"]
    derived = {
        "seams": seams,
        "max_samples": most if most is None or most >= reduction.samples else reduction.samples,
        "samples": reduction.samples,
        "percentile": {**body["percentile"], "effective": reduction.effective},
        "ceiling": {"factor": CEILING, "median": reduction.median, "limit": reduction.limit},
        "warnings": [because.record() for because in warnings(reduction)],
        "summary": summary(reduction, body["workload"]["name"]),
    }
    for field, value in derived.items():
        if body[field] != value:
            raise Refusal(
                Reason.STATISTIC, f"{field} does not follow from the table", subject=f"$.{field}"
            )


def scaled(point: PointRecord) -> bool:
    """Whether the point has an amax that a scale may be made of."""
    return point.amax is not None and point.verdict not in (Verdict.DEAD, Verdict.UNCALIBRATED)
