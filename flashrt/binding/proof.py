"""Proves a binding on its host: one real forward, and each region's reference on what it saw."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt.binding.address import Address, Capture
from flashrt.binding.boundary import base, live, needed
from flashrt.binding.model import Adapter, BindingSpec, RegionBinding
from flashrt.binding.resolver import Placed, first_per_path, place
from flashrt.binding.shaping import shaped, slots
from flashrt.binding.tap import Taps
from flashrt.binding.tree import NO_INDEX, Tree, expand
from flashrt.document.problem import InputError
from flashrt.spec.harness import Agreement, agreement
from flashrt.spec.model import Presence, TensorSpec
from flashrt.spec.reference import Reference, load_reference, shape_of
from flashrt_runtime.reason import Refusal

if TYPE_CHECKING:
    import torch

COSINE = 0.9999
RELATIVE = 1e-4  # largest absolute difference over the reference's largest magnitude


@dataclass(frozen=True)
class Proof:
    """One output or calibration point of one seam: the host's own tensor against the reference's.

    ``agreement`` is None where nothing could be compared; ``why`` says why it is not ``ok``.
    """

    region: str
    seam_id: str
    output: str
    agreement: Agreement | None
    ok: bool
    why: str = ""


def prove(
    binding: BindingSpec,
    model: torch.nn.Module,
    forward: Callable[[], object],
    *,
    indices: Collection[int] | None = None,
    trust: Iterable[Path] = (),
) -> list[Proof]:
    """One :class:`Proof` for each addressed output and point of each seam, in binding order.

    ``forward`` runs the host once; of each addressed module the first call counts. ``indices``
    narrows ``{i}``; ``trust`` are catalog folders outside the package whose references may run.
    A region that cannot be proven is one Proof that is not ok and says why. An output is ok with
    cosine ≥ 0.9999 and a largest difference ≤ 1e-4 of the reference's largest magnitude.

    The host is not changed. Raises :class:`InputError` where a path of the binding does not fit
    the host, and whatever ``forward`` raises.
    """
    import torch

    tree = Tree.of(model)
    placed, found = place(binding, tree)
    if found:
        raise InputError.of(first_per_path(found))
    placed = [p for p in placed if indices is None or p.index in {NO_INDEX, *indices}]
    taps = Taps(tree.modules)
    for one in placed:
        for address in _addresses(one.region):
            taps.want(address, expand(address.module, one.index))
    with torch.no_grad(), taps.watching():
        forward()
    folders = tuple(trust)
    references = {r.spec.id: load_reference(r.spec, folders) for r in (p.region for p in placed)}
    return [
        proof
        for one in placed
        for proof in _proofs(one, tree, taps, references[one.region.spec.id])
    ]


def _addresses(region: RegionBinding) -> Iterator[Address]:
    inputs, outputs = sides(region)
    for address in (*inputs.values(), *outputs.values(), *_points(region).values()):
        yield address
        for step in address.then:
            yield from step.other()


def sides(region: RegionBinding) -> tuple[Mapping[str, Address], Mapping[str, Address]]:
    """The addresses of inputs and outputs, those that go without saying included.

    A region whose only input is ``x``, and which is its members, reads the first member's argument
    and returns what the members return, by role or, of one member, by the spec's order.
    """
    if region.outputs or region.inputs:
        return region.inputs, region.outputs
    if needed(region.spec, region.variant) != {"x"} or region.adapter is not Adapter.NONE:
        return {}, {}
    members = dict(region.members)
    first = next(iter(members.values()))
    outputs = list(live(region.spec.outputs, region.variant))
    if set(members) == {"self"} and len(outputs) == 1:
        members = {outputs[0]: first}
    plain = {n: Address(m, Capture.OUTPUT) for n, m in members.items() if n in outputs}
    return {"x": Address(first, Capture.INPUT)}, plain


def _points(region: RegionBinding) -> dict[str, Address]:
    return {n: Address(p.module, Capture(p.capture)) for n, p in region.points.items()}


def _proofs(one: Placed, tree: Tree, taps: Taps, reference: Reference) -> Iterator[Proof]:
    region, seam = one.region, one.seam
    inputs, outputs = sides(region)
    if not outputs:
        why = "no output is addressed"
        yield Proof(region.name, seam.id, "", None, False, why)
        return
    try:
        given = _inputs(one, inputs, tree, taps)
        weights = slots(region, seam, tree)
        wanted = reference.everything(given, weights, region.variant)
    except (ValueError, Refusal) as error:
        said = error.what if isinstance(error, Refusal) else str(error)
        yield Proof(region.name, seam.id, "", None, False, f"its reference does not run: {said}")
        return
    for name, address in {**outputs, **_points(region)}.items():
        try:
            got = _seen(one, address, tree, taps)
            yield _judge(one, name, wanted[name], got)
        except (ValueError, LookupError) as error:
            yield Proof(region.name, seam.id, name, None, False, _said(error))


def _inputs(
    one: Placed, addresses: Mapping[str, Address], tree: Tree, taps: Taps
) -> dict[str, torch.Tensor]:
    """What the region was given; an optional input for which the host passed None is left out."""
    spec = one.region.spec
    given: dict[str, torch.Tensor] = {}
    for name, address in addresses.items():
        optional = spec.inputs[base(name, spec.inputs)].presence is Presence.OPTIONAL
        try:
            if optional and taps.get(address, expand(address.module, one.index)) is None:
                continue
            given[name] = _seen(one, address, tree, taps)
        except (ValueError, LookupError) as error:
            raise ValueError(f"the input {name}: {_said(error)}") from error
    return given


def _seen(one: Placed, address: Address, tree: Tree, taps: Taps) -> torch.Tensor:
    path = expand(address.module, one.index)
    value = taps.get(address, path)
    owner = tree.modules[path]

    def look(other: Address) -> torch.Tensor:
        return _seen(one, other, tree, taps)

    return shaped(value, address.then, tree.tensors, owner, one.index, look=look)


def _judge(one: Placed, name: str, wanted: Any, got: torch.Tensor) -> Proof:
    spec = one.region.spec
    tensor = _tensor(one.region, name)
    if got.shape != wanted.shape:
        folded = [shape_of(spec, tensor, tuple(t.shape)) for t in (wanted, got)]
        if folded[0] != folded[1]:
            why = f"the host has {list(got.shape)}, the reference {list(wanted.shape)}"
            return Proof(one.region.name, one.seam.id, name, None, False, why)
        got = got.reshape(wanted.shape)
    found = agreement(name, wanted, got)
    ok = found.within(COSINE, RELATIVE)
    why = (
        "" if ok else f"cosine {found.cosine:.6f}, off by {found.max_abs:.3g} of {found.scale:.3g}"
    )
    return Proof(one.region.name, one.seam.id, name, found, ok, why)


def _tensor(region: RegionBinding, name: str) -> TensorSpec:
    spec = region.spec
    known = {**spec.points, **spec.outputs}
    return known[base(name, known)]


def _said(error: Exception) -> str:
    return str(error.args[0]) if error.args else str(error)
