"""Finds decoder_ffn: act(gate(x)) * up(x) → down, by the tensors that flow between projections."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, islice, permutations

import torch

from flashrt.host.discovery.activation import KNOWN, Triple, fitting
from flashrt.host.discovery.near_miss import DECODER_FFN, Found, NearMiss
from flashrt.host.discovery.probe import again, likeness, loud, rows_like, unprobed
from flashrt.host.discovery.projection import Projection, stacked_matrices
from flashrt.host.discovery.sample import Observed
from flashrt.host.discovery.view import View, region_of
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason

_DOWNS = 4  # how many later projections are looked at for one that reads the product


@dataclass(frozen=True)
class GatedTrio:
    """Three projections in their roles, and the activations that fit every observed call.

    ``swapped`` are those that would fit with gate and up the other way round.
    """

    gate: Projection
    up: Projection
    down: Projection
    fits: tuple[str, ...]
    swapped: tuple[str, ...] = ()

    @property
    def projections(self) -> tuple[Projection, Projection, Projection]:
        """Gate, up and down."""
        return (self.gate, self.up, self.down)

    @property
    def paths(self) -> tuple[str, str, str]:
        """Paths of gate, up and down."""
        return (self.gate.path, self.up.path, self.down.path)


def find(view: View) -> Found:
    """decoder_ffn seams, and trios that are nearly one. :func:`near_misses` has the rest."""
    found = Found()
    for trio in find_trios(view.projections):
        region = region_of(view, trio.paths)
        found.look(region, DECODER_FFN, partial(seam_of, trio, region, view))
    for path, shape in stacked_matrices(view.paths).items():
        what = f"several matrices are stacked in one tensor {tuple(shape)}"
        found.add(NearMiss.of(path, DECODER_FFN, Reason.LAYOUT, what))
    return found


def find_trios(projections: Mapping[str, Projection]) -> list[GatedTrio]:
    """Every trio in which two projections read one tensor and a third reads their gated product.

    The roles of gate and up come from the numbers: only one of the two orders fits. Of the
    projections that could be down, the next one that was called is looked at first.
    """
    by_shape: dict[tuple[int, int], list[Projection]] = {}
    for projection in projections.values():
        by_shape.setdefault((projection.k, projection.n), []).append(projection)
    pairs = _sharing_pairs(projections)
    downs = [_downs(a, b, by_shape.get((a.n, a.k), ())) for a, b in pairs]
    trios: dict[int, GatedTrio] = {}
    for turn in range(_DOWNS):
        left = [i for i in range(len(pairs)) if i not in trios and turn < len(downs[i])]
        tried = [(*pairs[i], downs[i][turn]) for i in left]
        fits = iter(_fits([p for a, b, down in tried for p in ((a, b, down), (b, a, down))]))
        for i, (first, second, down) in zip(left, tried, strict=True):
            forward, backward = next(fits), next(fits)
            if forward:
                trios[i] = GatedTrio(first, second, down, forward, backward)
            elif backward:
                trios[i] = GatedTrio(second, first, down, backward)
    return [trios[i] for i in sorted(trios)]


def _downs(first: Projection, second: Projection, shaped: Sequence[Projection]) -> list[Projection]:
    """The next few of ``shaped``, in call order, that may read the product of these two."""
    after = max(first.calls[0].order, second.calls[0].order)
    calls = len(first.calls)
    later = (p for p in shaped if p.calls[0].order > after and len(p.calls) == calls)
    return list(islice(later, _DOWNS))


def _sharing_pairs(projections: Mapping[str, Projection]) -> list[tuple[Projection, Projection]]:
    """Pairs that read one tensor and have one width out, in call order."""
    groups: dict[tuple[object, ...], list[Projection]] = {}
    for projection in projections.values():
        groups.setdefault((projection.n, projection.k, projection.reads), []).append(projection)
    return [pair for group in groups.values() for pair in combinations(group, 2)]


def _fits(trios: Sequence[tuple[Projection, Projection, Projection]]) -> list[tuple[str, ...]]:
    """For each (gate, up, down): the activations that fit all of its calls."""
    triples: list[Triple] = []
    for gate, up, down in trios:
        for g, u, d in zip(gate.calls, up.calls, down.calls, strict=True):
            assert g.output is not None
            assert u.output is not None
            assert d.input is not None
            triples.append((g.output.kept, u.output.kept, d.input.kept))
    each = iter(fitting(triples))
    out = []
    for gate, _, _ in trios:
        names = [next(each) for _ in gate.calls]
        out.append(tuple(n for n in names[0] if all(n in other for other in names)))
    return out


def seam_of(trio: GatedTrio, region: str, view: View) -> Seam | NearMiss:
    """The trio as a seam, or why the module at ``region`` cannot be replaced as one."""

    def miss(reason: Reason, detail: str) -> NearMiss:
        return NearMiss.of(region, DECODER_FFN, reason, detail)

    whole = _is_whole(trio, region, view)
    if whole is not None:
        return miss(Reason.LAYOUT, whole)
    fits = trio.fits
    if trio.swapped and fits != ("identity",):
        return miss(Reason.AMBIGUOUS, "the observed numbers do not say which one is the gate")
    activation = _settled(trio, region, view)
    if isinstance(activation, NearMiss):
        return activation
    roles = {"gate": trio.gate, "up": trio.up, "down": trio.down}
    weights = {role: p.weight_key for role, p in roles.items()}
    weights |= {f"{role}_bias": p.bias_key for role, p in roles.items() if p.bias_key}
    variant = {"norm": "host", "activation": activation, "residual": "host", "modulation": "none"}
    return Seam(
        id=region,
        structure=DECODER_FFN,
        members={"self": region},
        variant=variant,
        dims={"D": trio.gate.k, "F": trio.gate.n},
        weights=weights,
        points={
            "x_after_norm": Point(region, "input"),
            "act_after_mul": Point(trio.down.path, "input"),
        },
    )


def _is_whole(trio: GatedTrio, region: str, view: View) -> str | None:
    """Why the region's module is not exactly this trio, or ``None`` when it is."""
    calls = view.seen.calls.get(region, [])
    if not region or len(calls) != len(trio.gate.calls):
        return "gate, up and down are not inside one module that is called once for them"
    for outer, first, last in zip(calls, trio.gate.calls, trio.down.calls, strict=True):
        if outer.input is None or not outer.input.same(first.input):
            return "the module around gate, up and down does other work before them"
        if outer.output is None or last.output is None:
            return "the module around gate, up and down does not return one tensor"
        if not outer.output.alike(last.output):
            return "the module around gate, up and down does other work after them"
        if not outer.plain:
            return "the module is not called with one positional tensor alone"
    return None


def _settled(trio: GatedTrio, region: str, view: View) -> str | NearMiss:
    """The one activation, or why the region is not one that the catalog knows."""
    try:
        fits = _probe(trio, region, view)
    except Exception as error:  # a host's own code, on values that it did not choose
        return unprobed(region, DECODER_FFN, error)
    reason = Reason.STRUCTURE
    if not fits:
        names = " or ".join(trio.fits)
        what = f"it is {names} where it was observed and not on other values: clamped or scaled"
    elif len(fits) != 1:
        names = ", ".join(fits)
        reason, what = Reason.AMBIGUOUS, f"its numbers fit several activations: {names}"
    elif fits[0] not in KNOWN:
        what = f"its activation is {fits[0]}, not {' or '.join(KNOWN)}"
    else:
        return fits[0]
    return NearMiss.of(region, DECODER_FFN, reason, what)


def _probe(trio: GatedTrio, region: str, view: View) -> tuple[str, ...]:
    """The activations that still fit, in fp32, on values that the host's own did not reach.

    A copy of the region is run in which gate and up say those values and down writes down their
    product; regions that are alike have one. Raises what the copy raises.
    """
    outer = view.seen.calls[region][0].input
    assert outer is not None
    at = view.once("leaves", lambda: dict(view.leaves))
    stands = {at[p.path]: (i, p.k, p.n, p.bias_key is None) for i, p in enumerate(trio.projections)}
    module = view.model.get_submodule(region)
    key = ("gated", likeness(module, stands), outer.shape, outer.kept.device, trio.fits)
    return view.once(key, lambda: _copied(trio, region, module, outer))


def _copied(
    trio: GatedTrio, region: str, module: torch.nn.Module, outer: Observed
) -> tuple[str, ...]:
    device, cut = outer.kept.device, len(region) + 1
    gate, up, down = (p.path[cut:] for p in trio.projections)
    gates, product = loud(trio.gate.n, device), rows_like(trio.down.n, device)
    seen = again(
        module,
        outer.shape,
        {
            gate: (trio.gate, gates),
            up: (trio.up, gates.flip(-1).roll(1, -1)),
            down: (trio.down, product),
        },
    )
    if not isinstance(seen.out, torch.Tensor) or not torch.equal(seen.out, seen.said[down]):
        return ()
    triple = seen.said[gate], seen.said[up], seen.read[down]
    return tuple(fitting([triple], among=trio.fits)[0])


def near_misses(view: View, found: Found, others: Collection[str]) -> list[NearMiss]:
    """Modules of two or three projections that are nearly a gated feed-forward, with the reason.

    ``found`` is what :func:`find` gave; ``others`` are modules that are known to be another thing.
    """
    done = {key for seam in found.seams for key in seam.weights.values()}
    tried = {m.path for m in found.misses} | set(others)
    children: dict[str, list[Projection]] = {}
    for projection in view.projections.values():
        children.setdefault(projection.parent, []).append(projection)
    out = []
    for parent, group in children.items():
        if parent in tried or not parent or any(p.weight_key in done for p in group):
            continue
        detail = _nearly(group)
        if detail is not None:
            out.append(NearMiss.of(parent, DECODER_FFN, *detail))
    return out


def _nearly(group: list[Projection]) -> tuple[Reason, str] | None:
    last = group[-1]
    if len(group) == 3:
        first, second = group[:2]
        shaped = first.n == second.n == last.k and first.k == second.k == last.n
        if shaped and first.reads != second.reads:
            return Reason.SHARED_INPUT, "gate and up were not seen to read one tensor"
        if shaped:
            return Reason.STRUCTURE, "what down reads is not act(gate) * up for a known activation"
    if len(group) == 2 and group[0].k == last.n and group[0].n >= last.k:
        if group[0].n == 2 * last.k and _halves_fit(group[0], last):
            return Reason.LAYOUT, "gate and up are packed in one weight"
        if group[0].n == last.k and last.n < last.k:
            return Reason.STRUCTURE, "there is no second projection that gates the first"
    return None


def _halves_fit(packed: Projection, down: Projection) -> bool:
    """Whether the halves of what the first put out are a gate and an up whose product down read."""
    out, product = packed.calls[0].output, down.calls[0].input
    if out is None or product is None:
        return False
    halves = out.kept.chunk(2, dim=-1)
    return any(fitting([(g, u, product.kept) for g, u in permutations(halves)]))
