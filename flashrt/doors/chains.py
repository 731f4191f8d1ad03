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
from flashrt.scheme.places import overlap
from flashrt.scheme.plan import Plan
from flashrt_runtime.chain_route import ChainRoute
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
        return self.route.members

    @property
    def route(self) -> ChainRoute:
        """The chain as plans and releases carry it."""
        return ChainRoute(self.producer.seam.id, self.readers, self.wire, self.scale)


@dataclass(frozen=True)
class Negotiated:
    """The plan with its producers, the chains, and why a norm before such a reader is in none."""

    plan: Plan
    chains: tuple[Chain, ...] = ()
    refused: tuple[Because, ...] = ()


@dataclass(frozen=True)
class Where:
    """Where forms are looked for: the device, the rows of a call at most, ``dtype`` a seam's."""

    device: str
    rows: int
    dtype: Callable[[Seam], str]


def negotiate(
    plan: Plan,
    norms: Sequence[Seam],
    where: Where,
    model: torch.nn.Module,
    runs: Sequence[Callable[[], Any]],
) -> Negotiated:
    """Find the chains of a plan; ``norms`` are the seams that a producer's form may serve.

    ``runs`` are forwards of ``model``; they are watched only where a producer and a reader have a
    form. Nothing is attached. Raises what the host raises.
    """
    readers, emitting = _candidates(plan, norms, where)
    if not readers or not emitting:
        return Negotiated(plan)
    seams = [one.seam for one in plan.seams]
    watched = [norm for norm, _ in emitting.values()]
    return settle(plan, norms, where, reads_of(model, watched, seams, runs))


def reads_of(
    model: torch.nn.Module,
    norms: Sequence[Seam],
    seams: Sequence[Seam],
    runs: Sequence[Callable[[], Any]],
) -> dict[str, Reads]:
    """Who reads what each norm returns, by the norm's module, in all of these forwards.

    ``seams`` are all there are: heads and the host's own projections may read a norm as well.
    """
    from flashrt.doors.exclusive import observe_reads

    watched = {_member(seam) for seam in seams if len(seam.members) == 1}
    return observe_reads(model, [_member(n) for n in norms if len(n.members) == 1], watched, runs)


def settle(
    plan: Plan, norms: Sequence[Seam], where: Where, reads: Mapping[str, Reads]
) -> Negotiated:
    """:func:`negotiate` from what :func:`reads_of` saw. A norm that was not watched is in none."""
    readers, emitting = _candidates(plan, norms, where)
    chains, refused = [], []
    for norm, form in emitting.values():
        seen = reads.get(_member(norm))
        found = None if seen is None else _judge(norm, form, seen, readers)
        if isinstance(found, Chain):
            chains.append(found)
        elif found is not None:
            refused.append(found)
    return Negotiated(_with(plan, chains), tuple(chains), tuple(refused))


def _candidates(
    plan: Plan, norms: Sequence[Seam], where: Where
) -> tuple[dict[str, SeamPlan], dict[str, tuple[Seam, Any]]]:
    """The seams that take the wire, by module, and the norms with a form that emits it, by id."""
    readers = {_member(one.seam): one for one in plan.bound if _point(one) is not None}
    covered = {path: one.seam.id for one in plan.bound for path in one.seam.members.values()}
    emitting = {
        norm.id: (norm, form)
        for norm in norms
        if len(norm.members) == 1 and overlap(norm, covered) is None
        if (form := _form(plan.scheme, norm, where)) is not None
    }
    return readers, emitting


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


def _form(scheme: str, norm: Seam, where: Where) -> Any:
    from flashrt_runtime.impl_loader import select

    dtype, variant = where.dtype(norm), dict(norm.variant)
    try:
        return select(
            norm.structure, scheme, where.device, where.rows, variant, dtype=dtype, wire=WIRE
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
    return replace(plan, seams=tuple(seams), chains=tuple(chain.route for chain in chains))


def linked(swaps: Sequence[Swap], chains: Sequence[Chain]) -> tuple[Swap, ...]:
    """Swaps with their part in a chain, whose parts serve the same rows and read its wire."""
    from flashrt_runtime.chain_route import link

    return link(swaps, [chain.route for chain in chains])
