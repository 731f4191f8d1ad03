"""The formulas a norm may compute, and whether observed rows are what one of them gives."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence, Set
from typing import NamedTuple

import torch

from flashrt_runtime.reason import Reason

KINDS = ("rms_direct", "rms_offset", "layer_affine", "layer_identity")
COMMON = (1e-5, 1e-6, 1e-8, 1e-12, 2.0**-23)  # tried where a module holds no number
_ROUNDINGS = 8
_COLUMNS = 64  # that are compared first
_POINTS = 0.99  # cosine of the angle between rows that resemble each other
_LARGEST = 1e-2  # no host's eps is larger, so no other number of a module is taken for one

Form = tuple[str, float]


class Sample(NamedTuple):
    """Rows [R, D] in and out of one call, and the parameters [D] of the module."""

    x: torch.Tensor
    y: torch.Tensor
    weight: torch.Tensor | None
    bias: torch.Tensor | None


def epsilons(module: torch.nn.Module) -> tuple[float, ...]:
    """Numbers to try as eps: those that the module holds, or else the common ones."""
    held = [v for v in vars(module).values() if isinstance(v, float) and 0 < v <= _LARGEST]
    return tuple(dict.fromkeys(held)) or COMMON


class Batch(NamedTuple):
    """Samples of one shape: their places, and x, y [G, R, D], weights and biases [G, 1, D]."""

    members: list[int]
    kinds: tuple[str, ...]
    dtype: torch.dtype
    x: torch.Tensor
    y: torch.Tensor
    weight: torch.Tensor | None
    bias: torch.Tensor | None


def batches(samples: Sequence[Sample]) -> list[Batch]:
    """The samples, stacked where they are alike; all but ``x`` is in fp32 or wider."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, sample in enumerate(samples):
        key = (sample.x.shape, sample.x.dtype, sample.y.dtype, _kinds(sample), sample.x.device)
        groups.setdefault(key, []).append(i)
    out = []
    for members in groups.values():
        some = [samples[i] for i in members]
        x = torch.stack([sample.x for sample in some])
        y = torch.stack([sample.y for sample in some]).to(_wide(x))
        weight = _stacked([sample.weight for sample in some], x)
        bias = _stacked([sample.bias for sample in some], x)
        out.append(Batch(members, _kinds(some[0]), some[0].y.dtype, x, y, weight, bias))
    return out


def _centred(x: torch.Tensor, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows without their mean, where the kind takes it off, in fp32 or wider; their mean square."""
    wide = x.to(_wide(x))
    if kind.startswith("layer"):
        wide = wide - wide.mean(-1, keepdim=True)
    return wide, wide.square().mean(-1, keepdim=True)


def core(x: torch.Tensor, kind: str, eps: float) -> torch.Tensor:
    """Normalised rows before weight and bias, in fp32 or wider."""
    wide, square = _centred(x, kind)
    return wide * torch.rsqrt(square + eps)


def _kinds(sample: Sample) -> tuple[str, ...]:
    if sample.weight is None:
        return ("layer_identity",)
    return ("layer_affine",) if sample.bias is not None else ("rms_direct", "rms_offset")


def changed(stacked: Sequence[Batch]) -> set[int]:
    """Places of the samples whose rows did not come out as they went in."""
    out: set[int] = set()
    for batch in stacked:
        off = (batch.x != batch.y).flatten(1).any(1).tolist()
        out |= {i for i, differs in zip(batch.members, off, strict=True) if differs}
    return out


def fits(stacked: Sequence[Batch], eps: Mapping[int, Collection[float]]) -> dict[int, list[Form]]:
    """For each sample's place, and the eps to try there: the forms that every row agrees with.

    The tolerance is eight roundings of the host's dtype of each element's size.
    """
    out: dict[int, list[Form]] = {i: [] for i in eps}
    for batch in stacked:
        tried = dict.fromkeys(e for i in batch.members for e in eps.get(i, ()))
        forms = [(kind, e) for e in tried for kind in batch.kinds]
        for form, near in zip(forms, _near(batch, forms), strict=True):
            for i, agrees in zip(batch.members, near, strict=True):
                if agrees and form[1] in eps.get(i, ()):
                    out[i].append(form)
    return out


def _near(batch: Batch, forms: Sequence[Form]) -> list[list[bool]]:
    """Form by form, whether every row of each member is what the form gives."""
    if not forms:
        return []
    rows = {kind: _centred(batch.x, kind) for kind, _ in forms}
    # most forms are far off, which a few columns show
    near = torch.stack([_right(batch, *rows[f[0]], f, _COLUMNS) for f in forms]).tolist()
    return [
        _right(batch, *rows[form[0]], form, None).tolist() if any(some) else some
        for form, some in zip(forms, near, strict=True)
    ]


def _right(
    batch: Batch, wide: torch.Tensor, square: torch.Tensor, form: Form, columns: int | None
) -> torch.Tensor:
    """Whether the first columns, or all, of every row of each member are what the form gives.

    ``wide`` are the rows without their mean, if need be, and ``square`` is their mean square.
    """
    kind, eps = form
    y, n = batch.y[..., :columns], wide[..., :columns] * torch.rsqrt(square + eps)
    w, b = (None if p is None else p[..., :columns] for p in (batch.weight, batch.bias))
    want, size = _apply(n, kind, w, b)
    off = (y - want).abs() - _ROUNDINGS * torch.finfo(batch.dtype).eps * size
    return (off <= 1e-30).flatten(1).all(dim=1)


def _wide(x: torch.Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _stacked(parameters: Sequence[torch.Tensor | None], x: torch.Tensor) -> torch.Tensor | None:
    present = [p.detach() for p in parameters if p is not None]
    return torch.stack(present).to(_wide(x))[:, None, :] if present else None


def _apply(
    n: torch.Tensor, kind: str, w: torch.Tensor | None, b: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result and the size that its rounding is relative to, element by element."""
    if w is None:
        return n, n.abs() + 1.0
    gain = 1.0 + w if kind == "rms_offset" else w
    want = n * gain
    # 1 + w is rounded before it multiplies; a row's mean is off by a rounding of the row's size
    size = want.abs() + (n.abs() if kind == "rms_offset" else 0.0)
    if b is not None:
        return want + b, size + b.abs() + gain.abs()
    return want, size


def row_scale_error(sample: Sample, kind: str, eps: float) -> bool:
    """Whether rows of a half-precision output are off by a factor, as low-precision statistics do.

    Rounding each element averages out over a row; a rounded mean square moves the whole row.
    """
    y = sample.y
    if torch.finfo(y.dtype).bits >= 32:
        return False
    w, b = (None if p is None else p.detach().float() for p in (sample.weight, sample.bias))
    want, _ = _apply(core(sample.x, kind, eps), kind, w, b)
    ratio = (y.float() * want).sum(-1) / want.square().sum(-1).clamp_min(1e-30)
    noise = 3 * torch.finfo(y.dtype).eps / math.sqrt(y.shape[-1])
    return bool(((ratio - 1).abs() > noise).any())


def chosen(width: int, eps: Sequence[float], weight: torch.Tensor | None) -> torch.Tensor:
    """Rows [R, width] fp32 that tell forms apart which a host's own rows may not.

    One row for each eps, of about its mean square; one with a mean; one that is large; two with
    one large element, where the gain is largest.
    """
    drawn = torch.Generator().manual_seed(width)
    unit = torch.randn(len(eps) + 2, width, generator=drawn)
    spike = torch.zeros(1, width)
    spike[0, 0 if weight is None else int(weight.detach().abs().argmax())] = 4.0
    small = [row * e**0.5 for row, e in zip(unit[2:], eps, strict=True)]
    return torch.cat([unit[:1] + 2.0, unit[1:2] * 500.0, spike, -spike, torch.stack(small)])


def resembling(stacked: Sequence[Batch], places: Set[int]) -> set[int]:
    """Places of those whose rows out point where normalised rows, with any gain, would point."""
    out: set[int] = set()
    for batch in stacked:
        if places.isdisjoint(batch.members):
            continue
        w, b = batch.weight, batch.bias
        y = batch.y if b is None else batch.y - b
        for kind in ("rms", "layer"):
            n = core(batch.x, kind, COMMON[0])
            for want in (n,) if w is None else (n, n * w, n * (1.0 + w)):
                cosine = torch.nn.functional.cosine_similarity(y, want, dim=-1)
                lowest = zip(batch.members, cosine.amin(1).tolist(), strict=True)
                out |= {i for i, least in lowest if i in places and least > _POINTS}
    return out


def nearly(first: Sample, eps: Sequence[float]) -> tuple[Reason, str] | None:
    """Why a module whose rows fit no form is nearly a norm, or ``None`` when it is not."""
    x, y = first.x.double(), first.y.double()
    if not bool(x.isfinite().all() & y.isfinite().all()):
        return None
    w = first.weight.detach().double() if first.weight is not None else None
    b = first.bias.detach().double() if first.bias is not None else None
    plain = y if b is None else y - b
    gains = (
        ((1.0, "no weight"),) if w is None else ((w, "a weight"), (1.0 + w, "a weight as 1 + w"))
    )
    best: tuple[float, tuple[Reason, str]] | None = None
    for kind, said in (("rms_direct", "its mean square"), ("layer_affine", "mean and variance")):
        n = core(x, kind, eps[0])
        for gain, how in gains:
            want = n * gain
            off = (plain - want).abs()
            near = bool((off <= 0.02 * want.abs() + 1e-3 * want.abs().amax()).all())
            if near and (best is None or float(off.amax()) < best[0]):
                bits = torch.finfo(first.y.dtype).bits
                best = (float(off.amax()), _named(said, how, b is not None, bits))
    return best[1] if best else None


def _named(said: str, how: str, bias: bool, bits: int) -> tuple[Reason, str]:
    also = " and a bias" if bias else ""
    layer = said.startswith("mean")
    known = {
        (False, "a weight", False),
        (False, "a weight as 1 + w", False),
        (True, "a weight", True),
        (True, "no weight", False),
    }
    if (layer, how, bias) in known:
        close = "but not to fp32: low-precision statistics, or an eps that was not recovered"
        return Reason.DTYPE, f"it normalises by {said} with {how}{also}, {close} ({bits}-bit out)"
    if layer and how == "a weight" and not bias:
        return Reason.STRUCTURE, "one-sided affine: it normalises by mean and variance, no bias"
    return Reason.STRUCTURE, f"no form of the catalog: by {said}, with {how}{also}"
