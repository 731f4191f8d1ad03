"""A negotiated chain as plans and routes carry it, and the swaps that it makes one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.strict_json import take

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.impl_loader import Form
    from flashrt_runtime.swap import Swap

WIRES = {"fp8_e4m3": "float8_e4m3fn"}  # a wire's name in records, and torch's dtype
Scales = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class ChainRoute:
    """One producer and its readers, by seam id, in call order.

    ``scale``: real value = scale × wire value, the one that every reader was bound for. The chain
    is named by its producer.
    """

    producer: str
    readers: tuple[str, ...]
    wire: str
    scale: float

    @property
    def members(self) -> tuple[str, ...]:
        """Every seam id, the producer's first."""
        return (self.producer, *self.readers)

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "producer": self.producer,
            "readers": list(self.readers),
            "wire": self.wire,
            "scale": self.scale,
        }

    @classmethod
    def from_record(cls, record: Any, source: str) -> ChainRoute:
        """The inverse of :meth:`record`. Raises :class:`Refusal` (SCHEMA)."""
        producer, wire = take(record, "producer", str, source), take(record, "wire", str, source)
        readers = take(record, "readers", list, source)
        scale = record.get("scale")
        if not readers or not all(isinstance(one, str) for one in readers):
            raise Refusal(Reason.SCHEMA, "readers: seam ids were expected", subject=source)
        if wire not in WIRES or type(scale) not in (int, float) or not scale > 0:
            what = f"wire {wire!r} or scale {scale!r} is unknown"
            raise Refusal(Reason.SCHEMA, what, subject=source)
        found = cls(producer, tuple(readers), wire, float(scale))
        if len(set(found.members)) != len(found.members):
            raise Refusal(Reason.CONFLICT, "a seam is in it twice", subject=source)
        return found


def members_record(chains: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Who is in each chain of a plan or a route, as cells and path evidence say it, sorted."""
    named = [{"producer": one["producer"], "readers": sorted(one["readers"])} for one in chains]
    return sorted(named, key=lambda one: str(one["producer"]))


def link(
    swaps: Sequence[Swap], chains: Sequence[ChainRoute], scales: Scales | None = None
) -> tuple[Swap, ...]:
    """Swaps with their part in a chain, whose parts serve the same rows and read its wire.

    ``scales`` are what each seam was bound with, by seam id and point. Raises :class:`Refusal`
    before anything is attached: BINDING for a chain without one of its members, and for a form
    that emits for readers in no chain; FORM for one that does not emit or take the wire; CONFLICT
    for a seam in two chains, or bound under another scale than its chain's.
    """
    import torch

    from flashrt_runtime.guard import RowRule
    from flashrt_runtime.swap import Link

    by_id, part = {swap.seam.id: swap for swap in swaps}, _parts(chains)
    for chain in chains:
        _check(chain, by_id, scales)
    made = []
    for swap in swaps:
        chain_of = part.get(swap.seam.id)
        if chain_of is None:
            _stands_alone(swap)
            made.append(swap)
            continue
        low, high = _band(chain_of, by_id)
        emits = swap.seam.id == chain_of.producer
        wire: torch.dtype = getattr(torch, WIRES[chain_of.wire])
        contract = replace(
            swap.contract,
            dtype=swap.contract.dtype if emits else wire,
            rows=(low, high),
            rule=RowRule.EXACT if low == high else RowRule.CAPACITY,
        )
        joined = Link(chain_of.producer, emits, chain_of.scale, wire)
        made.append(replace(swap, contract=contract, link=joined))
    return tuple(made)


def _parts(chains: Sequence[ChainRoute]) -> dict[str, ChainRoute]:
    part: dict[str, ChainRoute] = {}
    for chain in chains:
        for seam_id in chain.members:
            other = part.setdefault(seam_id, chain)
            if other is not chain:
                what = f"it is in the chains {other.producer!r} and {chain.producer!r}"
                raise Refusal(Reason.CONFLICT, what, subject=seam_id)
    return part


def _band(chain: ChainRoute, by_id: Mapping[str, Swap]) -> tuple[int, int | None]:
    """The rows that every part serves."""
    bands = [by_id[seam_id].contract.rows for seam_id in chain.members]
    highs = [high for _, high in bands if high is not None]
    return max(low for low, _ in bands), min(highs, default=None)


def _check(chain: ChainRoute, by_id: Mapping[str, Swap], scales: Scales | None) -> None:
    for seam_id in chain.members:
        swap = by_id.get(seam_id)
        if swap is None:
            raise Refusal(
                Reason.BINDING,
                f"the chain is not whole: it lost {seam_id!r}",
                subject=chain.producer,
                do="bind every seam of the chain, or none",
            )
        emits = seam_id == chain.producer
        points = list(_points(_form(swap), chain.wire, emits))
        if not points:
            does = "emits" if emits else "takes"
            what = f"{swap.backend} form {swap.form} {does} no {chain.wire}"
            raise Refusal(Reason.FORM, what, subject=seam_id)
        bound = chain.scale if scales is None else scales.get(seam_id, {}).get(points[0])
        if bound != chain.scale:
            what = f"it was bound under {bound!r}, its chain has {chain.scale!r}"
            raise Refusal(Reason.CONFLICT, what, subject=seam_id)


def _form(swap: Swap) -> Form | None:
    """The swap's form as its manifest states it; ``None`` for an impl that is not installed."""
    from flashrt_runtime.impl_loader import manifests

    for manifest in manifests():
        if (manifest.structure, manifest.backend) == (swap.seam.structure, swap.backend):
            return next((form for form in manifest.forms if form.name == swap.form), None)
    return None


def _points(form: Form | None, wire: str, emits: bool) -> Iterator[str]:
    if form is not None:
        stated = form.wire_out if emits else form.wire_in
        yield from (point for point, given in stated.items() if given == wire)


def _stands_alone(swap: Swap) -> None:
    form = _form(swap)
    if form is not None and not form.alone:
        raise Refusal(
            Reason.BINDING,
            "its form emits for readers that take it so, and it is in no chain",
            subject=swap.seam.id,
            do="bind every seam of the chain, or none",
        )
