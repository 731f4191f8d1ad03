"""A plan as a ModelPrecisionSpec: every tensor's precision, and where each scale is from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flashrt.calibration.origin import software, structure_records
from flashrt.calibration.precision_spec import (
    DataIdentity,
    ModelPrecisionSpec,
    PointPrecision,
    SeamPrecision,
    Source,
    WeightPrecision,
)
from flashrt.document.canonical import canonical_bytes, sha256
from flashrt.scheme.decision import Bind, KeepHost, SeamPlan
from flashrt.scheme.plan import Plan
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    from flashrt.calibration.receipt import Calibration


def precision_spec(
    plan: Plan,
    *,
    model_artifact: Mapping[str, Any],
    binding: Mapping[str, str] | None,
    specs: Mapping[str, str],
    workload: DataIdentity | None,
) -> ModelPrecisionSpec:
    """What a plan does to every seam of this host.

    ``specs`` maps ``structure@version`` to spec digests. ``workload`` is the data behind the
    scales; it is left out where no scale comes from data. Raises :class:`Refusal`: CONFLICT when
    two seams have one id, FORM when an impl of the plan is not installed.
    """
    ids = [one.seam.id for one in plan.seams]
    if len(set(ids)) != len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise Refusal(Reason.CONFLICT, "two seams have this id", subject=twice)
    dtype = str(model_artifact["dtype"])
    seams = {one.seam.id: _seam(one, dtype) for one in plan.seams}
    calibrated = any(
        point.source is Source.CALIBRATED
        for seam in seams.values()
        for point in seam.points.values()
    )
    return ModelPrecisionSpec(
        scheme=plan.scheme,
        model_artifact=model_artifact,
        binding=binding,
        structures=tuple(structure_records(specs)),
        calibration=plan.calibration or None,
        overrides=plan.overrides,
        workload=workload if calibrated else None,
        seams=seams,
        software=software(),
    )


def data_of(calibration: Calibration) -> DataIdentity:
    """The data of a calibration receipt."""
    body = calibration.body
    workload, percentile = body["workload"], body["percentile"]
    frames = [{"id": f["id"], "digest": f["digest"]} for f in workload["frames"]]
    return DataIdentity(
        workload["name"],
        sha256(canonical_bytes(frames)),
        body["samples"],
        percentile["asked"],
        percentile["effective"],
    )


def _seam(one: SeamPlan, dtype: str) -> SeamPrecision:
    structure, decision = one.seam.structure, one.decision
    if isinstance(decision, KeepHost) or one.impl is None:
        because = decision.because if isinstance(decision, KeepHost) else None
        return SeamPrecision(structure, None, because)
    from flashrt_runtime.impl_loader import find

    form = find(one.impl).spec
    points = {
        name: _point(one, decision, name, form.points.get(name, "none"))
        for name in sorted(one.seam.points)
    }
    matrices = _matrices(structure)
    weights = {
        slot: WeightPrecision(form.weights, form.weight_scales)
        if slot in matrices
        else WeightPrecision(dtype)
        for slot in sorted(one.seam.weights)
    }
    return SeamPrecision(structure, (one.impl["backend"], one.impl["form"]), None, points, weights)


def _point(one: SeamPlan, decision: Bind, name: str, how: str) -> PointPrecision:
    scale = decision.scales.get(name)
    if scale is None:
        return PointPrecision(
            None, None, Source.DYNAMIC if how == "dynamic" else Source.UNQUANTISED
        )
    source = Source.OVERRIDE if name in decision.overridden else Source.CALIBRATED
    return PointPrecision(one.statistics[name], scale, source)


def _matrices(structure: str) -> frozenset[str]:
    """Slots that a form may pack; vectors (norms, biases) keep the host's dtype."""
    from flashrt.spec import load

    spec = load(structure)
    slots = {n: s for n, s in spec.slots.items() if s.layout != "vector"}
    return frozenset(slots)
