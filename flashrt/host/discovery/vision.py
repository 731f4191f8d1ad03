"""Finds vision_ffn: two biased projections with a GELU between them, alone in a module.

The module may also hold the norm before them, a layer scale and the residual after them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch

from flashrt.host.discovery.activation import fitting
from flashrt.host.discovery.near_miss import VISION_FFN, Found, NearMiss
from flashrt.host.discovery.norms import Norm
from flashrt.host.discovery.probe import Again, again, loud, rows_like, unprobed
from flashrt.host.discovery.projection import Projection
from flashrt.host.discovery.trace import Call
from flashrt.host.discovery.view import View, region_of
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason

_GELUS = ("gelu_tanh", "gelu_erf")
_ROUNDINGS = 16
_AFTER = "the module around the pair does other work after it"


@dataclass(frozen=True)
class _Pair:
    """Two projections, the second of which reads an activation of what the first put out."""

    fc1: Projection
    fc2: Projection
    fits: tuple[str, ...]


def find(view: View) -> Found:
    """vision_ffn seams, and what is nearly one."""
    found = Found()
    for pair in _pairs(view):
        region = region_of(view, (pair.fc1.path, pair.fc2.path))
        found.look(region, VISION_FFN, partial(_judge, pair, region, view))
    return found


def _pairs(view: View) -> Iterator[_Pair]:
    """Neighbouring projections D → F → D between which one elementwise function was seen."""
    ordered = list(view.projections.values())
    near = [
        (a, b)
        for a, b in pairwise(ordered)
        if (a.k, a.n) == (b.n, b.k) and a.n >= a.k and len(a.calls) == len(b.calls)
    ]
    triples = [
        (x.output.kept, None, y.input.kept)
        for a, b in near
        for x, y in zip(a.calls, b.calls, strict=True)
        if x.output is not None and y.input is not None
    ]
    each = iter(fitting(triples))
    for a, b in near:
        names = [next(each) for _ in a.calls]
        fits = tuple(n for n in names[0] if all(n in other for other in names))
        if fits and fits != ("identity",):
            yield _Pair(a, b, fits)


def _judge(pair: _Pair, region: str, view: View) -> Seam | NearMiss:
    objection = _objection(pair, region, view)
    if objection is not None:
        return NearMiss.of(region, VISION_FFN, *objection)
    try:
        seen = _probe(pair, region, view)
    except Exception as error:  # a host's own code, on values that it did not choose
        return unprobed(region, VISION_FFN, error)
    fits, after = _fits(pair, region, seen), _after(pair, region, seen)
    objection = _unlike(pair, fits, after)
    around = _around(pair, region, view, after[0]) if objection is None else ""
    if objection is None and isinstance(around, str):
        objection = Reason.LAYOUT, around
    if objection is not None or isinstance(around, str):
        return NearMiss.of(region, VISION_FFN, *(objection or (Reason.LAYOUT, _AFTER)))
    return _seam(pair, region, fits[0], around)


def _unlike(
    pair: _Pair, fits: tuple[str, ...], after: list[tuple[str, bool]]
) -> tuple[Reason, str] | None:
    """Why what a copy did is not one GELU, and one thing at most after the pair."""
    found: tuple[Reason, str] | None = None
    if not fits:
        found = (Reason.STRUCTURE, f"it is {' or '.join(pair.fits)} only where it was observed")
    elif len(fits) > 1:
        what = f"its numbers fit several activations: {' and '.join(fits)}"
        found = (Reason.AMBIGUOUS, what)
    elif fits[0] not in _GELUS:
        what = f"its activation is {fits[0]}, not {' or '.join(_GELUS)}"
        found = (Reason.STRUCTURE, what)
    elif len(after) > 1:
        found = (Reason.AMBIGUOUS, "several of its vectors may be the layer scale")
    elif not after:
        found = (Reason.LAYOUT, _AFTER)
    return found


def _objection(pair: _Pair, region: str, view: View) -> tuple[Reason, str] | None:
    fc1, fc2 = pair.fc1, pair.fc2
    calls = view.seen.calls.get(region, [])
    if fc1.bias_key is None or fc2.bias_key is None:
        return Reason.STRUCTURE, "one of its two projections has no bias"
    if not region or len(calls) != len(fc1.calls):
        return Reason.LAYOUT, "its two projections are not in one module that is called for them"
    if not all(call.plain for call in calls):
        return Reason.LAYOUT, "the module is not called with one positional tensor alone"
    if not all(call.input and call.input.contiguous for call in calls):
        return Reason.LAYOUT, "it reads a view that is not contiguous"
    return None


def _probe(pair: _Pair, region: str, view: View) -> Again:
    """A copy of the region in which both projections say chosen values. Raises what it raises."""
    outer = view.seen.calls[region][0].input
    assert outer is not None
    device, cut = outer.kept.device, len(region) + 1
    values = loud(pair.fc1.n, device)
    return again(
        view.model.get_submodule(region),
        outer.shape,
        {
            pair.fc1.path[cut:]: (pair.fc1, values),
            # as many rows, no two alike, and none of them a row of the input
            pair.fc2.path[cut:]: (pair.fc2, rows_like(pair.fc2.n, device, len(values)).flip(1)),
        },
    )


def _fits(pair: _Pair, region: str, seen: Again) -> tuple[str, ...]:
    """The activations that fit what was observed, and in fp32 what the copy did."""
    fc1, fc2 = (p.path[len(region) + 1 :] for p in (pair.fc1, pair.fc2))
    triple = seen.said[fc1], None, seen.read[fc2]
    return tuple(fitting([triple], among=pair.fits)[0])


@dataclass(frozen=True)
class _Around:
    """What the module does besides the pair: axes of the spec and their slots."""

    variant: dict[str, str]
    weights: dict[str, str]


def _around(pair: _Pair, region: str, view: View, after: tuple[str, bool]) -> _Around | str:
    """What the region does around the pair, the same in every call, or what is in the way."""
    seen = [
        _before_and_after(outer, first, last, view, after)
        for outer, first, last in zip(
            view.seen.calls[region], pair.fc1.calls, pair.fc2.calls, strict=True
        )
    ]
    if any(one != seen[0] for one in seen):
        return "the module around the pair does not do the same in every call"
    return seen[0]


def _before_and_after(
    outer: Call, first: Call, last: Call, view: View, after: tuple[str, bool]
) -> _Around | str:
    assert outer.input is not None
    variant = {"norm": "host", "residual": "host", "layer_scale": "none"}
    weights: dict[str, str] = {}
    if not outer.input.same(first.input):
        norm = _norm_between(outer, first, view)
        if norm is None:
            return "the module around the pair does other work before it"
        if norm.kind not in ("layer_affine", "layer_identity"):
            return f"the norm before the pair is {norm.kind}; vision_ffn takes a LayerNorm"
        variant |= norm.variant
        names = {"weight": "norm", "bias": "norm_bias"}
        weights |= {names[slot]: key for slot, key in norm.weights.items()}
    scale, adds = after
    if not _follows(outer, last, view.model.get_parameter(scale) if scale else None, adds):
        return _AFTER
    if adds:
        variant["residual"] = "add"
    if scale:
        variant["layer_scale"] = "present"
        weights["layer_scale"] = scale
    return _Around(variant, weights)


def _norm_between(outer: Call, first: Call, view: View) -> Norm | None:
    for call in view.made_by(outer):
        made = call.output is not None and call.output.same(first.input)
        if made and call.module in view.norms and outer.input and outer.input.same(call.input):
            return view.norms[call.module]
    return None


def _after(pair: _Pair, region: str, seen: Again) -> list[tuple[str, bool]]:
    """Keys of the layer scale (empty for none) and whether the input is added, that fit a copy.

    In it every vector was given values of its own, so vectors that are alike are told apart.
    """
    made, out = seen.said[pair.fc2.path[len(region) + 1 :]], seen.out
    if not isinstance(out, torch.Tensor) or out.shape != made.shape:
        return []
    vectors = [
        (f"{region}.{name}", p.detach())
        for name, p in seen.module.named_parameters()
        if tuple(p.shape) == (made.shape[-1],)
    ]
    found = []
    for key, scale in (("", None), *vectors):
        scaled = made if scale is None else made * scale
        if _close(out, scaled):
            found.append((key, False))
        if seen.x.shape == made.shape and _close(out, scaled + seen.x):
            found.append((key, True))
    return found


def _follows(outer: Call, last: Call, scale: torch.Tensor | None, adds: bool) -> bool:
    """Whether the host's own rows say so too."""
    x, made, y = outer.input, last.output, outer.output
    if x is None or made is None or y is None or (adds and x.shape != made.shape):
        return False
    if scale is None and not adds:
        return y.alike(made)
    scaled = made.kept if scale is None else made.kept * scale
    return _close(y.kept, scaled + x.kept if adds else scaled)


def _close(y: torch.Tensor, want: torch.Tensor) -> bool:
    if y.shape != want.shape:
        return False
    tolerance = _ROUNDINGS * torch.finfo(y.dtype).eps
    size = want.abs() + want.abs().amax() * 0.1
    return bool(((y - want).abs() <= tolerance * size).all())


def _seam(pair: _Pair, region: str, activation: str, around: _Around) -> Seam:
    fc1, fc2 = pair.fc1, pair.fc2
    assert fc1.bias_key is not None
    assert fc2.bias_key is not None
    inside = around.variant["norm"] != "host"
    return Seam(
        id=region,
        structure=VISION_FFN,
        members={"self": region},
        variant={**around.variant, "activation": activation},
        dims={"D": fc1.k, "F": fc1.n},
        weights={
            **around.weights,
            "fc1": fc1.weight_key,
            "fc1_bias": fc1.bias_key,
            "fc2": fc2.weight_key,
            "fc2_bias": fc2.bias_key,
        },
        points={
            "x_after_norm": Point(fc1.path if inside else region, "input"),
            "act_after_gelu": Point(fc2.path, "input"),
        },
    )
