"""The formulas a norm may compute, and whether observed rows are what one of them gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashrt_runtime.reason import Reason

if TYPE_CHECKING:
    import torch

KINDS = ("rms_direct", "rms_offset", "layer_affine", "layer_identity")
COMMON = (1e-5, 1e-6, 1e-8, 1e-12, 2.0**-23)  # tried where a module holds no number
_ROUNDINGS = 8
_POINTS = 0.99  # cosine of the angle between rows that resemble each other
_LARGEST = 1e-2  # no host's eps is larger, so no other number of a module is taken for one

Form = tuple[str, float]


@dataclass(frozen=True)
class Sample:
    """Rows [R, D] in and out of one call, and the parameters [D] of the module."""

    x: torch.Tensor
    y: torch.Tensor
    weight: torch.Tensor | None
    bias: torch.Tensor | None


def epsilons(module: torch.nn.Module) -> tuple[float, ...]:
    """Numbers to try as eps: those that the module holds, or else the common ones."""
    held = [v for v in vars(module).values() if isinstance(v, float) and 0 < v <= _LARGEST]
    return tuple(dict.fromkeys(held)) or COMMON


def core(x: torch.Tensor, kind: str, eps: float) -> torch.Tensor:
    """Normalised rows before weight and bias, in fp32 or wider."""
    import torch

    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if kind.startswith("layer"):
        wide = wide - wide.mean(-1, keepdim=True)
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)


def _kinds(sample: Sample) -> tuple[str, ...]:
    if sample.weight is None:
        return ("layer_identity",)
    return ("layer_affine",) if sample.bias is not None else ("rms_direct", "rms_offset")


def fits(samples: Sequence[tuple[Sample, Sequence[float]]]) -> list[list[Form]]:
    """For each sample and the eps to try: the forms that every row agrees with.

    The tolerance is eight roundings of the host's dtype of each element's size.
    """
    import torch

    out: list[list[Form]] = [[] for _ in samples]
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, (sample, _) in enumerate(samples):
        key = (sample.x.shape, sample.x.dtype, sample.y.dtype, _kinds(sample), sample.x.device)
        groups.setdefault(key, []).append(i)
    for members in groups.values():
        first = samples[members[0]][0]
        x = torch.stack([samples[i][0].x for i in members])
        y = torch.stack([samples[i][0].y for i in members]).to(_wide(x))
        w = _stacked([samples[i][0].weight for i in members], x)
        b = _stacked([samples[i][0].bias for i in members], x)
        roundings = _ROUNDINGS * torch.finfo(first.y.dtype).eps
        for eps in dict.fromkeys(eps for i in members for eps in samples[i][1]):
            for kind in _kinds(first):
                want, size = _apply(core(x, kind, eps), kind, w, b)
                off = (y - want).abs() - roundings * size
                near = (off <= 1e-30).flatten(1).all(dim=1).tolist()
                for i, agrees in zip(members, near, strict=True):
                    if agrees and eps in samples[i][1]:
                        out[i].append((kind, eps))
    return out


def _wide(x: torch.Tensor) -> torch.dtype:
    import torch

    return torch.promote_types(x.dtype, torch.float32)


def _stacked(parameters: Sequence[torch.Tensor | None], x: torch.Tensor) -> torch.Tensor | None:
    import torch

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
    import torch

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
    import torch

    drawn = torch.Generator().manual_seed(width)
    unit = torch.randn(len(eps) + 2, width, generator=drawn)
    spike = torch.zeros(1, width)
    spike[0, 0 if weight is None else int(weight.detach().abs().argmax())] = 4.0
    small = [row * e**0.5 for row, e in zip(unit[2:], eps, strict=True)]
    return torch.cat([unit[:1] + 2.0, unit[1:2] * 500.0, spike, -spike, torch.stack(small)])


def resembling(samples: Sequence[Sample]) -> list[bool]:
    """Whether rows out point where normalised rows, with any gain of the module, would point."""
    import torch

    out = [False] * len(samples)
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, sample in enumerate(samples):
        known = sample.weight is None, sample.bias is None
        groups.setdefault((sample.x.shape, sample.x.dtype, sample.x.device, known), []).append(i)
    for members in groups.values():
        x = torch.stack([samples[i].x for i in members])
        y = torch.stack([samples[i].y for i in members]).to(_wide(x))
        w = _stacked([samples[i].weight for i in members], x)
        b = _stacked([samples[i].bias for i in members], x)
        y = y if b is None else y - b
        for kind in ("rms", "layer"):
            n = core(x, kind, COMMON[0])
            for want in (n,) if w is None else (n, n * w, n * (1.0 + w)):
                cosine = torch.nn.functional.cosine_similarity(y, want, dim=-1)
                for i, lowest in zip(members, cosine.amin(1).tolist(), strict=True):
                    out[i] = out[i] or lowest > _POINTS
    return out


def nearly(first: Sample, eps: Sequence[float]) -> tuple[Reason, str] | None:
    """Why a module whose rows fit no form is nearly a norm, or ``None`` when it is not."""
    import torch

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
