"""Negotiates chains: a norm emits under the scale that all its readers were bound for, as one.

A chain is made of facts only: what the readers' forms take (``wire_in``), what a producer's form
emits (``wire_out``), one scale that all of them agree on, and forwards in which nothing else read
the tensor between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flashrt.calibration.statistic import AMAX
from flashrt.scheme.decision import Bind, SeamPlan
from flashrt.scheme.forms import impl_record
from flashrt.scheme.plan import Plan
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt.doors.exclusive import Reads
    from flashrt_runtime.swap import Swap

WIRE = "fp8_e4m3"


@dataclass(frozen=True)
class Chain:
    """One producer and its readers, by seam id. ``scale``: real value = scale × wire value."""

    id: str
    kind: str  # "norm_fused@1 -> linear_proj@1": what is judged together
    producer: SeamPlan
    readers: tuple[str, ...]
    scale: float
    wire: str = WIRE

    @property
    def parts(self) -> tuple[str, ...]:
        """Every seam id, the producer's first."""
        return (self.producer.seam.id, *self.readers)


@dataclass(frozen=True)
class Negotiated:
    """The plan with its producers, the chains, and why a norm before such a reader is in none."""

    plan: Plan
    chains: tuple[Chain, ...] = ()
    refused: tuple[Because, ...] = ()


@dataclass(frozen=True)
class Site:
    """Where forms are looked for, and what runs the host: ``runs`` are forwards, ``rows`` theirs
    at most, ``dtype`` a seam's."""

    model: torch.nn.Module
    device: str
    rows: int
    dtype: Callable[[Seam], str]
    runs: Sequence[Callable[[], Any]]


def negotiate(plan: Plan, norms: Sequence[Seam], site: Site) -> Negotiated:
    """Find the chains of a plan; ``norms`` are the seams that a producer's form may serve.

    The host's forwards are watched only where a producer and a reader have a form. Nothing is
    attached. Raises what the host raises.
    """
    readers = {_member(one.seam): one for one in plan.bound if _point(one) is not None}
    forms = {norm.id: form for norm in norms if (form := _form(plan.scheme, norm, site))}
    emitting = [norm for norm in norms if norm.id in forms and len(norm.members) == 1]
    if not readers or not emitting:
        return Negotiated(plan)
    from flashrt.doors.exclusive import observe_reads

    # the heads and the host's own projections may read a norm as well: they are listed, too
    watched = {_member(s.seam) for s in plan.seams if len(s.seam.members) == 1} | set(readers)
    seen = observe_reads(site.model, [_member(n) for n in emitting], watched, site.runs)
    chains, refused = [], []
    for norm in emitting:
        found = _judge(norm, forms[norm.id], seen[_member(norm)], readers)
        if isinstance(found, Chain):
            chains.append(found)
        elif found is not None:
            refused.append(found)
    return Negotiated(_with(plan, chains), tuple(chains), tuple(refused))


def _member(seam: Seam) -> str:
    return next(iter(seam.members.values()))


def _point(one: SeamPlan) -> str | None:
    """The point at which a bound seam of one module takes the wire as its input, under a scale."""
    from flashrt_runtime.impl_loader import find

    if one.impl is None or len(one.seam.members) != 1 or not isinstance(one.decision, Bind):
        return None
    for name, format_ in find(one.impl).spec.wire_in.items():
        at = one.seam.points.get(name)
        scale = one.decision.scales.get(name)
        here = at is not None and (at.module, at.capture) == (_member(one.seam), "input")
        if format_ == WIRE and here and isinstance(scale, float):
            return name
    return None


def _form(scheme: str, norm: Seam, site: Site) -> Any:
    from flashrt_runtime.impl_loader import select

    dtype, variant = site.dtype(norm), dict(norm.variant)
    try:
        return select(
            norm.structure, scheme, site.device, site.rows, variant, dtype=dtype, wire=WIRE
        )
    except Refusal as refusal:
        if refusal.reason is Reason.AMBIGUOUS:
            raise
        return None


def _judge(
    norm: Seam, form: Any, reads: Reads, readers: Mapping[str, SeamPlan]
) -> Chain | Because | None:
    able = [readers[path] for path in reads.readers if path in readers]
    if not able:
        return None
    if reads.objection:
        return Because(Reason.SHARED_INPUT, f"it emits nothing: {reads.objection}", norm.id)
    other = [path for path in reads.readers if path not in readers]
    if other:
        what = f"{other[0]} reads it too and takes no {WIRE}"
        return Because(Reason.SHARED_INPUT, f"it emits nothing: {what}", norm.id)
    scales = {one.seam.id: _scale(one) for one in able}
    if len(set(scales.values())) != 1:
        told = ", ".join(f"{name} {scale:.6g}" for name, scale in scales.items())
        return Because(
            Reason.CONFLICT, f"it emits nothing: its readers' scales are {told}", norm.id
        )
    scale = next(iter(scales.values()))
    (point,) = (name for name, format_ in form.spec.wire_out.items() if format_ == WIRE)
    kinds = " + ".join(sorted({one.seam.structure for one in able}))
    producer = SeamPlan(norm, Bind({point: scale}), impl_record(norm, form), {point: AMAX})
    return Chain(norm.id, f"{norm.structure} -> {kinds}", producer, tuple(scales), scale)


def _scale(one: SeamPlan) -> float:
    name = _point(one)
    assert name is not None
    assert isinstance(one.decision, Bind)
    scale = one.decision.scales[name]
    assert isinstance(scale, float)
    return scale


def _with(plan: Plan, chains: Sequence[Chain]) -> Plan:
    """The plan with every producer before the first of its readers."""
    before = {chain.readers[0]: chain.producer for chain in chains}
    seams: list[SeamPlan] = []
    for one in plan.seams:
        if one.seam.id in before:
            seams.append(before[one.seam.id])
        seams.append(one)
    return replace(plan, seams=tuple(seams))


def linked(swaps: Sequence[Swap], chains: Sequence[Chain]) -> tuple[Swap, ...]:
    """Swaps with their part in a chain, whose parts serve the same rows and read its wire."""
    import torch

    from flashrt_runtime.guard import RowRule
    from flashrt_runtime.swap import Link

    part = {seam_id: chain for chain in chains for seam_id in chain.parts}
    bands = {s.seam.id: s.contract.rows for s in swaps}
    made = []
    for swap in swaps:
        chain = part.get(swap.seam.id)
        if chain is None:
            made.append(swap)
            continue
        low = max(bands[seam_id][0] for seam_id in chain.parts)
        highs = [high for seam_id in chain.parts if (high := bands[seam_id][1]) is not None]
        high = min(highs, default=None)
        emits = swap.seam.id == chain.producer.seam.id
        wire = torch.float8_e4m3fn
        contract = replace(
            swap.contract,
            dtype=swap.contract.dtype if emits else wire,
            rows=(low, high),
            rule=RowRule.EXACT if low == high else RowRule.CAPACITY,
        )
        link = Link(chain.id, emits, chain.scale, wire)
        made.append(replace(swap, contract=contract, link=link))
    return tuple(made)
