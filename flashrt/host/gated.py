"""Finds decoder_ffn: act(gate(x)) * up(x) → down, by the tensors that flow between projections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import TYPE_CHECKING

from flashrt.host.activation import KNOWN, fitting
from flashrt.host.near_miss import DECODER_FFN, NearMiss
from flashrt.host.projection import Projection
from flashrt.host.trace import Call, Trace, trace
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason

if TYPE_CHECKING:
    import torch

_PROBE_AMAX = 4.0  # where the activations that a name confuses are furthest apart

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
    def paths(self) -> tuple[str, str, str]:
        """Paths of gate, up and down."""
        return (self.gate.path, self.up.path, self.down.path)

    @property
    def region(self) -> str:
        """Path of the innermost module that holds all three."""
        return common_parent(self.paths)


def common_parent(paths: tuple[str, ...]) -> str:
    """The innermost module path that every path lies in."""
    parts = [p.split(".")[:-1] for p in paths]
    shared = []
    for names in zip(*parts, strict=False):
        if len(set(names)) != 1:
            break
        shared.append(names[0])
    return ".".join(shared)


def _tensors(calls: tuple[Call, ...], side: str) -> list[torch.Tensor]:
    return [getattr(call, side).tensor for call in calls]


def _share_input(a: Projection, b: Projection) -> bool:
    return len(a.calls) == len(b.calls) and all(
        x.input is not None and y.input is not None and x.input.same(y.input)
        for x, y in zip(a.calls, b.calls, strict=True)
    )


def _fits(gate: Projection, up: Projection, down: Projection) -> tuple[str, ...]:
    if not len(gate.calls) == len(up.calls) == len(down.calls):
        return ()
    triples = zip(
        _tensors(gate.calls, "output"),
        _tensors(up.calls, "output"),
        _tensors(down.calls, "input"),
        strict=True,
    )
    names: list[str] | None = None
    for triple in triples:
        fit = fitting(*triple)
        names = fit if names is None else [n for n in names if n in fit]
    return tuple(names or ())


def find_trios(projections: Mapping[str, Projection]) -> list[GatedTrio]:
    """Every trio in which two projections read one tensor and a third reads their gated product.

    The roles of gate and up come from the numbers: only one of the two orders fits.
    """
    ordered = list(projections.values())
    trios = []
    for first, second in _sharing_pairs(ordered):
        after = max(first.calls[0].order, second.calls[0].order)
        downs = [
            p for p in ordered if p.calls[0].order > after and (p.k, p.n) == (first.n, first.k)
        ]
        for down in downs[:_DOWNS]:
            trio = _trio(first, second, down)
            if trio is not None:
                trios.append(trio)
                break
    return trios


def _trio(first: Projection, second: Projection, down: Projection) -> GatedTrio | None:
    forward, backward = _fits(first, second, down), _fits(second, first, down)
    if forward:
        return GatedTrio(first, second, down, forward, backward)
    return GatedTrio(second, first, down, backward) if backward else None


def _sharing_pairs(ordered: list[Projection]) -> list[tuple[Projection, Projection]]:
    """Pairs that read one tensor and have one width out, in call order."""
    return [
        (a, b)
        for a, b in combinations(ordered, 2)
        if (a.n, a.k) == (b.n, b.k) and _share_input(a, b)
    ]


def seam_of(trio: GatedTrio, model: torch.nn.Module, seen: Trace) -> Seam | NearMiss:
    """The trio as a seam, or why the module around it cannot be replaced as one."""
    region = trio.region

    def miss(reason: Reason, detail: str) -> NearMiss:
        return NearMiss.of(region, DECODER_FFN, reason, detail)

    whole = _is_whole(trio, seen)
    if whole is not None:
        return miss(Reason.LAYOUT, whole)
    fits = trio.fits
    if trio.swapped and fits != ("identity",):
        return miss(Reason.AMBIGUOUS, "the observed numbers do not say which one is the gate")
    if len(fits) > 1:
        fits = _probe(trio, model, seen)
    if len(fits) != 1:
        names = ", ".join(fits or trio.fits)
        return miss(Reason.AMBIGUOUS, f"the observed numbers fit several activations: {names}")
    if fits[0] not in KNOWN:
        return miss(Reason.STRUCTURE, f"its activation is {fits[0]}, not {' or '.join(KNOWN)}")
    roles = {"gate": trio.gate, "up": trio.up, "down": trio.down}
    weights = {role: p.weight_key for role, p in roles.items()}
    weights |= {f"{role}_bias": p.bias_key for role, p in roles.items() if p.bias_key}
    return Seam(
        id=region,
        structure=DECODER_FFN,
        members={"self": region},
        variant={
            "norm": "host",
            "activation": fits[0],
            "residual": "host",
            "modulation": "none",
        },
        dims={"D": trio.gate.k, "F": trio.gate.n},
        weights=weights,
        points={
            "x_after_norm": Point(region, "input"),
            "act_after_mul": Point(trio.down.path, "input"),
        },
    )


def _is_whole(trio: GatedTrio, seen: Trace) -> str | None:
    """Why the region's module is not exactly this trio, or ``None`` when it is."""
    import torch

    calls = seen.calls.get(trio.region, [])
    if not trio.region or len(calls) != len(trio.gate.calls):
        return "gate, up and down are not inside one module that is called once for them"
    for outer, first, last in zip(calls, trio.gate.calls, trio.down.calls, strict=True):
        if outer.input is None or first.input is None or not outer.input.same(first.input):
            return "the module around gate, up and down does other work before them"
        if outer.output is None or last.output is None:
            return "the module around gate, up and down does not return one tensor"
        same = outer.output.same(last.output)
        if not same and not torch.equal(outer.output.tensor, last.output.tensor):
            return "the module around gate, up and down does other work after them"
        if not outer.plain:
            return "the module is not called with one positional tensor alone"
    return None


def _probe(trio: GatedTrio, model: torch.nn.Module, seen: Trace) -> tuple[str, ...]:
    """The activations that still fit when the region reads its own input at a larger scale."""
    region = model.get_submodule(trio.region)
    call = trio.gate.calls[0]
    if call.input is None or call.output is None:
        return ()
    amax = float(call.output.tensor.abs().amax())
    if not amax > 0:
        return ()
    x = call.input.tensor * (_PROBE_AMAX / amax)
    cut = len(trio.region) + 1
    gate, up, down = (path[cut:] for path in trio.paths)
    again = trace(region, lambda: region(x), {gate, up, down})
    g, u, d = (again.calls[path][0] for path in (gate, up, down))
    if g.output is None or u.output is None or d.input is None:
        return ()
    fits = fitting(g.output.tensor, u.output.tensor, d.input.tensor)
    return tuple(name for name in fits if name in trio.fits)


def near_misses(projections: Mapping[str, Projection], taken: set[str]) -> list[NearMiss]:
    """Modules of two or three projections that are nearly a gated feed-forward, with the reason."""
    children: dict[str, list[Projection]] = {}
    for projection in projections.values():
        children.setdefault(projection.parent, []).append(projection)
    out = []
    for parent, group in children.items():
        if taken & {p.path for p in group} or not parent:
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
        if shaped and not _share_input(first, second):
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
    halves = out.tensor.chunk(2, dim=-1)
    return any(fitting(g, u, product.tensor) for g, u in permutations(halves))
