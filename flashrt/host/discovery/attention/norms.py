"""RMSNorm of queries and keys, told by what a module put out for what it read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashrt.host.discovery.attention.tap import Child

if TYPE_CHECKING:
    import torch

_EPS = (1e-6, 1e-5, 1e-8, 1e-12, 0.0)
_MOST_EPS = 0.1
_POSITIONS = 8


@dataclass(frozen=True)
class RmsNorm:
    """A child that divides by the root mean square over its last dim, and multiplies by a vector.

    ``fits`` are the pairs of gain and eps that the observed numbers allow, the likeliest first:
    gain is direct (times the weight) or offset (times one plus it). ``weight`` is the key within
    the child.
    """

    child: Child
    fits: tuple[tuple[str, float], ...]
    width: int
    weight: str


def vector_of(module: torch.nn.Module) -> tuple[str, torch.Tensor] | None:
    """The only parameter of a module without children, when it is a vector."""
    own = list(module.named_parameters())
    if len(own) != 1 or own[0][1].dim() != 1 or list(module.children()):
        return None
    return own[0][0], own[0][1].detach()


def _candidates(module: torch.nn.Module, dtype: torch.dtype) -> Iterator[float]:
    """Values of eps to try: what the module holds first, then what is usual."""
    import torch

    held = [v for v in vars(module).values() if isinstance(v, float) and 0 <= v < _MOST_EPS]
    if not held and "eps" in vars(module):  # none given: torch takes the dtype's own
        held = [torch.finfo(dtype).eps]
    yield from held or _EPS


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
    rows, made = _some(x, width), _some(y, width)
    square = rows.square().mean(dim=-1, keepdim=True)
    fits = []
    for eps in _candidates(child.module, x.dtype):
        unit = rows * (square + eps).rsqrt()
        for gain, factor in (("direct", weight.double()), ("offset", weight.double() + 1.0)):
            if agree(made, unit * factor, y.dtype):
                fits.append((gain, eps))
    return RmsNorm(child, tuple(fits), width, name) if fits else None


def _some(tensor: torch.Tensor, width: int) -> torch.Tensor:
    rows = tensor.detach().reshape(-1, width)
    return rows[:: max(1, rows.shape[0] // _POSITIONS)].double()


def agree(made: torch.Tensor, want: torch.Tensor, dtype: torch.dtype, bound: float = 0.0) -> bool:
    """Whether two double tensors differ by no more than roundings of ``dtype``.

    ``bound`` is the size of the terms that were summed, where it is above that of the result.
    """
    import torch

    scale = want.abs() + max(bound, float(want.abs().mean()) * 1e-2)
    difference = (made - want).abs()
    return bool((difference <= min(32 * torch.finfo(dtype).eps, 0.05) * scale).all())
