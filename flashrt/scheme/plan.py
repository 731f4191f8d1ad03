"""A plan: every seam's outcome under one scheme, on one device, for one number of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from flashrt.calibration.statistic import require_measurable
from flashrt.document.canonical import seal
from flashrt.scheme.decision import Bind, Decision, KeepHost, Scheme, SeamPlan, Site
from flashrt.scheme.registry import get, resolve
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    from flashrt.calibration.reduce import PointRecord

Select = Callable[..., Any]  # flashrt_runtime.impl_loader.select


class Measured(Protocol):
    """Reduced points: a calibration receipt's, or a door's own."""

    @property
    def digest(self) -> str:
        """Digest of the receipt; empty where there is none."""

    @property
    def limit(self) -> float:
        """The scale ceiling."""

    def of(self, seam: Seam) -> Mapping[str, PointRecord]:
        """The seam's points by name."""


@dataclass(frozen=True)
class Plan:
    """``scheme`` is resolved (never ``auto``). ``refused`` are seams for which no impl serves."""

    scheme: str
    seams: tuple[SeamPlan, ...]
    refused: tuple[Because, ...]
    calibration: str | None

    @property
    def bound(self) -> tuple[SeamPlan, ...]:
        """The seams that bind."""
        return tuple(s for s in self.seams if isinstance(s.decision, Bind))

    def record(
        self,
        *,
        model_artifact: Mapping[str, Any],
        binding: Mapping[str, str],
        binding_manifest: Mapping[str, Any],
    ) -> dict[str, Any]:
        """The sealed plan artefact."""
        return seal(
            {
                "schema": "flashrt.plan/1",
                "scheme": self.scheme,
                "binding": dict(binding),
                "binding_manifest": dict(binding_manifest),
                "calibration": self.calibration,
                "model_artifact": dict(model_artifact),
                "seams": [seam.record() for seam in self.seams],
                "refused": [because.record() for because in self.refused],
            }
        )


def plan(
    scheme: str,
    seams: Sequence[Seam],
    calibration: Measured | None = None,
    *,
    device: str = "cpu",
    rows: int = 1,
    select: Select | None = None,
) -> Plan:
    """Decide every seam and choose an impl form for those that bind.

    ``rows`` is the number of rows in one call. Seams that bind never overlap. ``select`` is
    ``flashrt_runtime.impl_loader.select`` unless a test gives another. Raises :class:`Refusal`:
    CONFLICT for an unknown scheme, PERCENTILE for a statistic that nothing measures,
    UNCALIBRATED when the scheme needs a calibration and there is none.
    """
    name = resolve(scheme, device)
    chosen = get(name)
    if select is None:
        from flashrt_runtime.impl_loader import select as loader_select

        select = loader_select
    needs = check_statistics(chosen, seams)
    if needs and calibration is None:
        raise Refusal(
            Reason.UNCALIBRATED,
            f"{name} needs activation statistics and no calibration was given",
            subject=needs[0],
            do="run `flashrt calibrate` first",
        )
    heads = find_heads(seams)
    limit = calibration.limit if calibration else float("inf")
    plans: list[SeamPlan] = []
    refused: list[Because] = []
    covered: dict[str, str] = {}
    for seam in seams:
        site = Site(rows, seam.id in heads, limit)
        measured = calibration.of(seam) if calibration and needs else {}
        decision = chosen.decide(seam, measured, site)
        impl = None
        if isinstance(decision, Bind):
            other = overlap(seam, covered)
            if other is not None:
                decision = KeepHost.of(seam, f"its modules are bound as part of {other}")
            else:
                decision, impl = _choose(
                    seam, decision, scheme=name, device=device, rows=rows, select=select
                )
        if impl is not None:
            covered |= dict.fromkeys(seam.members.values(), seam.id)
        elif isinstance(decision, KeepHost) and decision.because.reason in _UNSERVED:
            refused.append(decision.because)
        plans.append(SeamPlan(seam, decision, impl))
    used = calibration.digest if calibration and needs else None
    return Plan(name, tuple(plans), tuple(refused), used)


_UNSERVED = (Reason.FORM, Reason.ARCH, Reason.SHAPE, Reason.STRUCTURE, Reason.DTYPE)


def _choose(
    seam: Seam, decision: Bind, *, scheme: str, device: str, rows: int, select: Select
) -> tuple[Decision, dict[str, str] | None]:
    """The decision with the impl form that serves it, or the host kept because none does."""
    try:
        form = select(seam.structure, scheme, device, rows, dict(seam.variant))
    except Refusal as refusal:
        # Two forms that both serve is a mistake in the manifests, not a property of this seam.
        if refusal.reason is Reason.AMBIGUOUS:
            raise
        return KeepHost(Because(refusal.reason, refusal.what, seam.id)), None
    return decision, {
        "structure": seam.structure,
        "backend": str(form.backend),
        "form": str(form.form),
    }


def check_statistics(scheme: Scheme, seams: Sequence[Seam]) -> list[str]:
    """Seam ids with a point that must be measured. Refuses what no collector measures."""
    needing = []
    for seam in seams:
        wanted = scheme.statistics(seam)
        for point, statistic in sorted(wanted.items()):
            require_measurable(statistic, f"{seam.id}:{point}")
        if any(statistic is not None for statistic in wanted.values()):
            needing.append(seam.id)
    return needing


def overlap(seam: Seam, covered: Mapping[str, str]) -> str | None:
    """The seam that already holds one of these modules, a module around or a module inside it."""
    for member in seam.members.values():
        for path, owner in covered.items():
            nested = path.startswith(f"{member}.") or member.startswith(f"{path}.")
            if path == member or nested:
                return owner
    return None


def find_heads(seams: Sequence[Seam]) -> frozenset[str]:
    """linear_proj seams whose nearest module with another seam in it holds every seam.

    That is an output head, wherever it is called what: the projections of a layer have siblings
    in the layer, and a head's first company is the whole model.
    """
    everything = {seam.id for seam in seams}
    heads = set()
    for seam in seams:
        scope = seam.id
        while scope:
            scope = scope.rpartition(".")[0]
            prefix = f"{scope}." if scope else ""
            inside = {other for other in everything if other.startswith(prefix)}
            if len(inside) > 1:
                if inside == everything and seam.structure.startswith("linear_proj@"):
                    heads.add(seam.id)
                break
    return frozenset(heads)
