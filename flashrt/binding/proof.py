"""Proves a binding on its host: real forwards, and each region's reference on what they showed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt.binding import quiet, roles
from flashrt.binding.boundary import base, live
from flashrt.binding.model import BindingSpec, RegionBinding
from flashrt.binding.resolver import Placed, first_per_path, place, refuse_training
from flashrt.binding.seen import Seen, points, said, sides, watch
from flashrt.binding.shaping import slots
from flashrt.binding.tree import NO_INDEX, Tree
from flashrt.document.problem import InputError
from flashrt.spec.harness import Agreement, agreement
from flashrt.spec.model import TensorSpec
from flashrt.spec.reference import Reference, load_reference, shape_of
from flashrt_runtime.reason import Refusal

if TYPE_CHECKING:
    import torch

COSINE = 0.9999
RELATIVE = 1e-4  # largest absolute difference over the reference's largest magnitude
EPS = "eps"  # what a Proof of the variant's eps has for its output


@dataclass(frozen=True)
class Proof:
    """One output or calibration point of one seam: the host's own tensor against the reference's.

    ``output`` is ``eps`` where it is the variant's eps that was judged, on quiet rows.
    ``agreement`` is None where nothing could be compared; ``why`` says why it is not ``ok``.
    ``unseen`` marks an output that the binding says the host never shows: not proven, not wrong.
    """

    region: str
    seam_id: str
    output: str
    agreement: Agreement | None
    ok: bool
    why: str = ""
    unseen: bool = False


def prove(
    binding: BindingSpec,
    model: torch.nn.Module,
    forward: Callable[[], object],
    *,
    indices: Collection[int] | None = None,
    trust: Iterable[Path] = (),
) -> list[Proof]:
    """One :class:`Proof` for each output, point and eps of each seam, in binding order.

    ``forward`` runs the host once, and again for each region that has an eps (twice for one that
    is made of others): what its norm reads is then scaled to a mean square of about eps, so that
    an eps that is wrong by ten percent shows. Of each addressed module the first call counts.
    ``indices`` narrows ``{i}``; ``trust`` are catalog folders outside the package whose references
    may run.

    An output is ok with cosine ≥ 0.9999 and a largest difference ≤ 1e-4 of the reference's largest
    magnitude; never when both are zero, when it is not addressed, or when it is a query, key or
    value that the host's attention, or another region of the binding, has in another role. What
    cannot be proven is one Proof that is not ok and says why, never dropped.

    The host is not changed. Raises :class:`InputError` where a path of the binding does not fit
    the host, :class:`Refusal` (TRAINING) for a host in training mode, and whatever ``forward``
    raises on its own rows.
    """
    tree = Tree.of(model)
    refuse_training(tree)
    placed, found = place(binding, tree)
    if found:
        raise InputError.of(first_per_path(found))
    placed = [p for p in placed if indices is None or p.index in {NO_INDEX, *indices}]
    seen = watch(placed, tree, forward, also=roles.authorities(placed))
    folders = tuple(trust)
    references = {r.spec.id: load_reference(r.spec, folders) for r in (p.region for p in placed)}
    proofs = {one.key: _proofs(one, seen, references[one.region.spec.id]) for one in placed}
    for clash in roles.contradicted(placed, seen):
        key = (clash.region, clash.seam_id)
        proofs[key] = _clashed(proofs[key], clash)
    for region in binding.regions.values():
        some = [p for p in placed if p.region is region and _fine(proofs[p.key])]
        for proof in _eps(some, seen, forward, references):
            proofs[proof.region, proof.seam_id].append(proof)
    return [proof for one in placed for proof in proofs[one.key]]


def _fine(proofs: list[Proof]) -> bool:
    return all(p.ok or p.unseen for p in proofs)


def _proofs(one: Placed, seen: Seen, reference: Reference) -> list[Proof]:
    region = one.region
    blank = Proof(region.name, one.seam.id, "", None, False)
    outputs = sides(region)[1]
    if not outputs:
        return [replace(blank, why="no output is addressed")]
    try:
        given = seen.inputs(one)
        weights = slots(region, one.seam, seen.tree)
        wanted = reference.everything(given, weights, region.variant)
    except (ValueError, Refusal) as error:
        what = error.what if isinstance(error, Refusal) else str(error)
        return [replace(blank, why=f"its reference does not run: {what}")]
    found: list[Proof] = []
    for name, address in {**outputs, **points(region)}.items():
        try:
            found.append(_judge(one, name, wanted[name], seen.tensor(one, address)))
        except (ValueError, LookupError) as error:
            found.append(replace(blank, output=name, why=said(error)))
    known = live(region.spec.outputs, region.variant)
    for name in wanted:
        bare = base(name, known)
        if bare in known and name not in outputs:
            why = region.unseen.get(name) or region.unseen.get(bare, "")
            missing = replace(blank, output=name, why=why or "it is not addressed")
            found.append(replace(missing, unseen=bool(why)))
    return found


def _judge(one: Placed, name: str, wanted: Any, got: torch.Tensor) -> Proof:
    spec = one.region.spec
    tensor = _tensor(one.region, name)
    if got.shape != wanted.shape:
        folded = [shape_of(spec, tensor, tuple(t.shape)) for t in (wanted, got)]
        if folded[0] != folded[1]:
            why = f"the host has {list(got.shape)}, the reference {list(wanted.shape)}"
            return Proof(one.region.name, one.seam.id, name, None, False, why)
        got = got.reshape(wanted.shape)
    if not wanted.numel():
        return Proof(one.region.name, one.seam.id, name, None, False, "it has no element")
    found = agreement(name, wanted, got)
    ok = found.within(COSINE, RELATIVE)
    why = (
        "" if ok else f"cosine {found.cosine:.6f}, off by {found.max_abs:.3g} of {found.scale:.3g}"
    )
    if ok and not found.scale > 0.0:
        ok, why = False, "both are zero, which proves nothing"
    return Proof(one.region.name, one.seam.id, name, found, ok, why)


def _clashed(proofs: list[Proof], clash: roles.Clash) -> list[Proof]:
    """The proofs with the clash at the output of its name, or added where that is an input's."""
    if any(p.output == clash.name for p in proofs):
        return [
            replace(p, ok=False, unseen=False, why=clash.why) if p.output == clash.name else p
            for p in proofs
        ]
    return [*proofs, Proof(clash.region, clash.seam_id, clash.name, None, False, clash.why)]


def _eps(
    some: list[Placed],
    seen: Seen,
    forward: Callable[[], object],
    references: Mapping[str, Reference],
) -> Iterator[Proof]:
    """One region's seams: whether their eps is the host's."""
    asked: list[tuple[Placed, frozenset[str], float]] = []
    choice: tuple[frozenset[str], float] | None = None
    for one in some:
        if quiet.eps_of(one) is None:
            continue
        if choice is None:  # the seams of one region differ in numbers only; each is judged below
            weights = slots(one.region, one.seam, seen.tree)
            choice = quiet.chosen(one, references[one.region.spec.id], seen.inputs(one), weights)
        why = "no quiet row shows it" if choice is None else quiet.beyond(one, choice[0])
        if choice is None or why:
            yield Proof(one.region.name, one.seam.id, EPS, None, False, why)
        else:
            asked.append((one, *choice))
    found: dict[tuple[str, str], Proof] = {}
    for turn in range(max((len(quiet.rounds(one, level)) for one, _, level in asked), default=0)):
        some_rows = [(o, names, quiet.rounds(o, level)[turn]) for o, names, level in asked]
        for proof in _on_quiet_rows(some_rows, seen.tree, forward, references):
            before = found.get((proof.region, proof.seam_id), proof)
            found[proof.region, proof.seam_id] = before if not before.ok else proof
    yield from found.values()


def _on_quiet_rows(
    asked: list[tuple[Placed, frozenset[str], float]],
    tree: Tree,
    forward: Callable[[], object],
    references: Mapping[str, Reference],
) -> Iterator[Proof]:
    placed = [one for one, *_ in asked]
    try:
        again = watch(placed, tree, forward, inside=quiet.quietened(tree, asked))
    except Exception as error:  # the host's own code, on rows that nobody gave it before
        what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        for one in placed:
            why = f"the host does not run on quiet rows: {what}"
            yield Proof(one.region.name, one.seam.id, EPS, None, False, why)
        return
    for one in placed:
        yield _quiet(one, again, references[one.region.spec.id])


def _quiet(one: Placed, seen: Seen, reference: Reference) -> Proof:
    """The seam's outputs on quiet rows, as one Proof of its eps: the first not ok, or ok."""
    proofs = [p for p in _proofs(one, seen, reference) if not p.unseen]
    bad = next((p for p in proofs if not p.ok), None)
    if bad is not None:
        return replace(bad, output=EPS, why=f"on quiet rows {bad.output}: {bad.why}")
    weights = slots(one.region, one.seam, seen.tree)
    worst = min((p.agreement for p in proofs if p.agreement), key=lambda a: a.cosine)
    found = Proof(one.region.name, one.seam.id, EPS, worst, True)
    if quiet.shows(reference, seen.inputs(one), weights, one.region.variant):
        return found
    return replace(found, ok=False, why="the host's rows could not be made quiet enough")


def _tensor(region: RegionBinding, name: str) -> TensorSpec:
    spec = region.spec
    known = {**spec.points, **spec.outputs}
    return known[base(name, known)]
