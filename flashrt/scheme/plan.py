"""A plan: every seam's outcome under one scheme, on one device, for one number of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flashrt.document.canonical import seal
from flashrt.scheme.decision import Bind, KeepHost, SeamPlan, Site
from flashrt.scheme.forms import Forms, Select, executes, impl_record
from flashrt.scheme.needs import Measured, check_statistics
from flashrt.scheme.overrides import Overrides
from flashrt.scheme.places import find_heads, overlap
from flashrt.scheme.registry import get, quantises, resolve
from flashrt.scheme.structures import is_fusion
from flashrt_runtime.chain_route import ChainRoute
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason, Refusal


@dataclass(frozen=True)
class Plan:
    """``scheme`` is resolved (never ``auto``). ``refused`` are seams that no form serves.

    ``calibration`` is the digest of the receipt that the scales come from, ``overrides`` that of
    the file with the scales that a person gave; ``None`` where there is none. ``chains`` are
    bound, judged and taken out whole (:mod:`flashrt.doors.chains` negotiates them).
    """

    scheme: str
    seams: tuple[SeamPlan, ...]
    refused: tuple[Because, ...]
    calibration: str | None
    overrides: str | None = None
    chains: tuple[ChainRoute, ...] = ()

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
        """The sealed plan artefact; ``overrides`` and ``chains`` only where there are any."""
        given: dict[str, Any] = {"overrides": self.overrides} if self.overrides else {}
        if self.chains:
            given["chains"] = [chain.record() for chain in self.chains]
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
                **given,
            }
        )


def plan(
    scheme: str,
    seams: Sequence[Seam],
    calibration: Measured | None = None,
    *,
    device: str = "cpu",
    rows: int = 1,
    dtype: str | Callable[[Seam], str] = "float32",
    overrides: Overrides | None = None,
    select: Select | None = None,
) -> Plan:
    """Decide every seam and choose an impl form for those that bind.

    ``rows`` is the number of rows in one call, ``dtype`` the host's, or says what a seam's is.
    Seams that bind never overlap. A seam that no form serves keeps the host, with the reason, and
    no calibration is asked for its sake. Fusions are not the scheme's to decide: they bind wherever
    the scheme left their modules to them, beside what it binds, or alone where it quantises
    nothing. ``select`` is
    ``flashrt_runtime.impl_loader.select`` unless a test gives another. Raises :class:`Refusal`:
    CONFLICT for an unknown scheme or an override that nothing uses, BINDING for an override of
    what the host does not have, PERCENTILE for a statistic that nothing measures, UNCALIBRATED
    when the scheme needs a calibration and there is none, AMBIGUOUS.
    """
    name = resolve(scheme, device)
    chosen = get(name)
    if select is None:
        from flashrt_runtime.impl_loader import select as loader_select

        select = loader_select
    if overrides is not None:
        overrides.require_known({seam.id: seam for seam in seams})
    dtype_of = dtype if callable(dtype) else lambda seam: str(dtype)
    forms = Forms(name, device, rows, dtype_of, select)
    needs = set(check_statistics(chosen, seams, calibration, serves=forms.serves))
    if needs and calibration is None:
        raise Refusal(
            Reason.UNCALIBRATED,
            f"{name} needs activation statistics and no calibration was given",
            subject=min(needs),
            do="run `flashrt calibrate` first",
        )
    heads, limit = find_heads(seams), calibration.limit if calibration else float("inf")
    made: dict[int, SeamPlan] = {}
    covered: dict[str, str] = {}
    for i, seam in enumerate(seams):
        if is_fusion(seam.structure):
            continue
        asked = chosen.statistics(seam)
        form = forms.of(seam)
        measured = calibration.of(seam) if calibration and seam.id in needs else {}
        if any(asked.values()) and isinstance(form, Because):
            one = SeamPlan(seam, KeepHost(form), None)
        else:
            decision = chosen.decide(seam, measured, Site(rows, seam.id in heads, limit))
            one = _placed(SeamPlan(seam, decision, None, asked), form, covered)
        if overrides is not None:
            one = replace(one, decision=overrides.apply(seam, one.decision))
        made[i] = one
    # A cell is named by its scheme: one without a seam of its own would claim what another did.
    alone = quantises(name) and not any(one.impl for one in made.values())
    for i, seam in enumerate(seams):
        if not is_fusion(seam.structure):
            continue
        if alone:
            kept = KeepHost.of(seam, "the scheme binds no seam beside it")
            made[i] = SeamPlan(seam, kept, None)
        else:
            made[i] = _placed(SeamPlan(seam, Bind(), None), forms.of(seam), covered)
    ordered = tuple(made[i] for i in range(len(seams)))
    used = calibration.digest if calibration and needs else None
    given = overrides.digest if overrides is not None and overrides.scales else None
    return Plan(name, ordered, _refused(ordered), used, given)


def _placed(one: SeamPlan, form: Any, covered: dict[str, str]) -> SeamPlan:
    """The seam with the form that serves it, or the host kept because none does, or another holds
    its modules; ``covered`` gains the modules of a seam that binds."""
    seam, decision = one.seam, one.decision
    if isinstance(decision, KeepHost):
        return one
    other = overlap(seam, covered)
    if other is not None:
        return replace(one, decision=KeepHost.of(seam, f"its modules are bound as part of {other}"))
    because = form if isinstance(form, Because) else executes(form, decision, seam)
    if because is not None:
        return replace(one, decision=KeepHost(because))
    covered.update(dict.fromkeys(seam.members.values(), seam.id))
    return replace(one, impl=impl_record(seam, form))


_UNSERVED = (Reason.FORM, Reason.ARCH, Reason.SHAPE, Reason.STRUCTURE, Reason.DTYPE)


def _refused(seams: Sequence[SeamPlan]) -> tuple[Because, ...]:
    """Seams that would bind and that no form serves. A fusion without any impl is no loss here."""
    found = []
    for one in seams:
        if isinstance(one.decision, KeepHost) and one.decision.because.reason in _UNSERVED:
            missing = one.decision.because.reason is Reason.STRUCTURE
            if not (missing and is_fusion(one.seam.structure)):
                found.append(one.decision.because)
    return tuple(found)
