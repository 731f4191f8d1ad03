"""RMSNorm of queries and keys, told by what a module put out for what it read."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from flashrt.host.discovery.attention.tap import Child

_EPS = (1e-5, 1e-6, 2.0**-23, 1e-8, 1e-12, 0.0)
_MOST_EPS = 0.1
_GAINS = ("direct", "offset")

Fit = tuple[str, float]


@dataclass(frozen=True)
class RmsNorm:
    """A child that divides by the root mean square over its last dim, and multiplies by a vector.

    ``fits`` are the pairs of gain and eps that what it read allows, and what it puts out for rows
    so small that eps decides: none where eps is another number, several where they cannot be told
    apart. Gain is direct (times the weight) or offset (times one plus it). ``weight`` is the key
    within the child.
    """

    child: Child
    fits: tuple[tuple[str, float], ...]
    width: int
    weight: str


def vector_of(module: torch.nn.Module) -> tuple[str, torch.Tensor] | None:
    """The only parameter of a module without children, when it is a vector."""
    if any(child is not None for child in module._modules.values()):
        return None
    named = [(name, p) for name, p in module._parameters.items() if p is not None]
    if not named or any(p is not named[0][1] for _, p in named) or named[0][1].dim() != 1:
        return None
    return named[0][0], named[0][1].detach()


def _candidates(module: torch.nn.Module) -> tuple[float, ...]:
    """Values of eps to try: what the module holds first, then what is usual."""
    import torch

    held = [v for v in vars(module).values() if isinstance(v, float)]
    held += [
        float(f"{float(v):.6g}")  # 1e-5 as float32 is not 1e-5
        for v in (*vars(module).values(), *module.buffers())
        if isinstance(v, torch.Tensor) and v.is_floating_point() and v.numel() == 1
    ]
    return tuple(dict.fromkeys((*(v for v in held if 0 <= v < _MOST_EPS), *_EPS)))


def recognise(child: Child) -> RmsNorm | None:
    """The norm that this child was seen to compute, or ``None``."""
    held = vector_of(child.module)
    if held is None or child.input is None or child.output is None:
        return None
    x, y, (name, weight) = child.input.tensor, child.output.tensor, held
    width = weight.shape[0]
    if x.shape != y.shape or x.shape[-1] != width or not x.is_floating_point() or not x.numel():
        return None
    if not (child.input.intact() and child.output.intact()):
        return None
    fits = _fits(x, y, weight, [(gain, e) for e in _candidates(child.module) for gain in _GAINS])
    return RmsNorm(child, _settled(child.module, x, weight, fits), width, name) if fits else None


def _fits(
    x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, tried: Sequence[Fit]
) -> tuple[Fit, ...]:
    """Those that every row of ``x`` [.., D] and ``y`` allows."""
    rows, made = x.double(), y.double()
    square = rows.square().mean(dim=-1, keepdim=True)
    found = []
    for gain, eps in tried:
        factor = weight.double() + (1.0 if gain == "offset" else 0.0)
        if agree(made, rows * (square + eps).rsqrt() * factor, y.dtype):
            found.append((gain, eps))
    return tuple(found)


def _settled(
    module: torch.nn.Module, x: torch.Tensor, weight: torch.Tensor, fits: tuple[Fit, ...]
) -> tuple[Fit, ...]:
    """Those that also hold for what the norm read made quiet, as a copy of the module puts it out.

    A module that cannot be copied, or does not take other values, leaves what was observed.
    """
    import torch

    size = float(x.double().square().mean())
    for eps in sorted({eps for _, eps in fits if eps > 0}, reverse=True):
        quiet = x * (eps / size) ** 0.5 if size > eps else x
        try:
            with torch.no_grad():
                made = copy.deepcopy(module)(quiet)
        except Exception:  # the host's own code, given what it did not expect
            return fits
        if not isinstance(made, torch.Tensor) or made.shape != x.shape:
            return fits
        fits = _fits(quiet, made, weight, fits)
    return fits


def agree(made: torch.Tensor, want: torch.Tensor, dtype: torch.dtype, bound: float = 0.0) -> bool:
    """Whether two double tensors differ by no more than roundings of ``dtype``.

    ``bound`` is the size of the terms that were summed, where it is above that of the result.
    """
    import torch

    scale = want.abs() + max(bound, float(want.abs().mean()) * 1e-2)
    difference = (made - want).abs()
    return bool((difference <= min(32 * torch.finfo(dtype).eps, 0.05) * scale).all())
