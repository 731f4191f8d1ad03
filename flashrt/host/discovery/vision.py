"""Finds vision_ffn: two biased projections with a GELU between them, alone in a module.

The module may also hold the norm before them, a layer scale and the residual after them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch

from flashrt.host.discovery.activation import fitting
from flashrt.host.discovery.near_miss import VISION_FFN, Found, NearMiss
from flashrt.host.discovery.norms import Norm
from flashrt.host.discovery.probe import louder
from flashrt.host.discovery.projection import Projection
from flashrt.host.discovery.sample import Observed
from flashrt.host.discovery.trace import Call
from flashrt.host.discovery.view import View, region_of
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason

_GELUS = ("gelu_tanh", "gelu_erf")
_ROUNDINGS = 16


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
        found.add(_judge(pair, view))
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


def _judge(pair: _Pair, view: View) -> Seam | NearMiss:
    fc1, fc2 = pair.fc1, pair.fc2
    region = region_of(view, (fc1.path, fc2.path))
    objection = _objection(pair, region, view)
    if objection is not None:
        return NearMiss.of(region, VISION_FFN, *objection)
    fits = _gelus(pair, region, view)
    if len(fits) != 1:
        names = " and ".join(pair.fits)
        what = f"the observed numbers fit several activations: {names}"
        return NearMiss.of(region, VISION_FFN, Reason.AMBIGUOUS, what)
    if fits[0] not in _GELUS:
        what = f"its activation is {fits[0]}, not {' or '.join(_GELUS)}"
        return NearMiss.of(region, VISION_FFN, Reason.STRUCTURE, what)
    around = _around(pair, region, view)
    if isinstance(around, str):
        return NearMiss.of(region, VISION_FFN, Reason.LAYOUT, around)
    return _seam(pair, region, fits[0], around)


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


def _gelus(pair: _Pair, region: str, view: View) -> tuple[str, ...]:
    """The activations that fit; where the observed numbers are too small, larger ones are made."""
    if len(pair.fits) == 1:
        return pair.fits
    again = louder(view.model, region, pair.fc1.calls[0], (pair.fc1.path, pair.fc2.path))
    if again is None or again[0].output is None or again[1].input is None:
        return pair.fits
    still = fitting([(again[0].output.kept, None, again[1].input.kept)])[0]
    return tuple(name for name in pair.fits if name in still)


@dataclass(frozen=True)
class _Around:
    """What the module does besides the pair: axes of the spec and their slots."""

    variant: dict[str, str]
    weights: dict[str, str]


def _around(pair: _Pair, region: str, view: View) -> _Around | str:
    """What the region does around the pair, the same in every call, or what is in the way."""
    seen = [
        _before_and_after(outer, first, last, region, view)
        for outer, first, last in zip(
            view.seen.calls[region], pair.fc1.calls, pair.fc2.calls, strict=True
        )
    ]
    if any(one != seen[0] for one in seen):
        return "the module around the pair does not do the same in every call"
    return seen[0]


def _before_and_after(
    outer: Call, first: Call, last: Call, region: str, view: View
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
    after = _after(outer, last, region, view)
    if after is None:
        return "the module around the pair does other work after it"
    scale, adds = after
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


def _after(outer: Call, last: Call, region: str, view: View) -> tuple[str, bool] | None:
    """The key of the layer scale (empty for none) and whether the input is added to the result."""
    x, made, y = outer.input, last.output, outer.output
    assert x is not None
    if made is None or y is None:
        return None
    if y.alike(made):
        return "", False
    for key, scale in (("", None), *_vectors(region, made, view)):
        scaled = made.kept if scale is None else made.kept * scale
        for adds in (False, True):
            if adds and x.shape != made.shape:
                continue
            if _close(y, scaled + x.kept if adds else scaled):
                return key, adds
    return None


def _vectors(region: str, made: Observed, view: View) -> list[tuple[str, torch.Tensor]]:
    module = view.model.get_submodule(region)
    return [
        (f"{region}.{name}", p.detach())
        for name, p in module.named_parameters()
        if tuple(p.shape) == (made.width,)
    ]


def _close(y: Observed, want: torch.Tensor) -> bool:
    if y.kept.shape != want.shape:
        return False
    tolerance = _ROUNDINGS * torch.finfo(y.dtype).eps
    size = want.abs() + want.abs().amax() * 0.1
    return bool(((y.kept - want).abs() <= tolerance * size).all())


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
