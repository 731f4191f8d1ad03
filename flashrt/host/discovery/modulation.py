"""Where a norm's output was scaled and shifted, per feature, before a projection read it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flashrt.host.discovery.norms import Norm
from flashrt.host.discovery.projection import Projection
from flashrt.host.discovery.sample import Observed
from flashrt.host.discovery.trace import Call
from flashrt.host.discovery.view import View

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROUNDINGS = 64
_MOST = 0.03  # of an element's size, however coarse the dtype
_FEWEST = 3  # rows that are needed to see that a line, which two rows always fit, is followed


@dataclass(frozen=True)
class Site:
    """``reader`` read norm(x)·(1 + scale) + shift; ``scale`` and ``shift`` [B, r, D] or [B, 1, D].

    They were solved from the rows that were kept, so they carry the host's rounding.
    """

    norm: Norm
    reader: Projection
    scale: torch.Tensor
    shift: torch.Tensor


@dataclass(frozen=True)
class Between:
    """A module that stands between a norm and the projection that reads what it made."""

    norm: Norm
    path: str


def last_norm(reader: Projection, view: View) -> tuple[Norm, Call] | None:
    """The norm that was called last before the projection, on a tensor of the same shape."""
    call = reader.calls[0]
    if call.input is None:
        return None
    made = view.once("norms made", lambda: _made_by_norms(view)).get(call.input.shape, ())
    at = bisect_left(made, call.order, key=lambda one: one[1].order)
    return made[at - 1] if at else None


def _made_by_norms(view: View) -> dict[tuple[int, ...], list[tuple[Norm, Call]]]:
    """Calls of norms by the shape of what they made, in call order."""
    made: dict[tuple[int, ...], list[tuple[Norm, Call]]] = {}
    for norm in view.norms.values():
        for call in norm.calls:
            if call.output is not None:
                made.setdefault(call.output.shape, []).append((norm, call))
    for each in made.values():
        each.sort(key=lambda one: one[1].order)
    return made


def site_of(reader: Projection, view: View) -> Site | Between | None:
    """How the projection's first call read a modulated norm, or ``None`` when it did not."""
    call, found = reader.calls[0], last_norm(reader, view)
    if found is None or call.input is None:
        return None
    norm, made = found
    if made.output is None or made.output.alike(call.input):
        return None
    between = _between(made, call, view)
    if between:
        return Between(norm, between)
    fitted = _fit(made.output, call.input) or _by_token(made.output, call, view)
    return Site(norm, reader, *fitted) if fitted else None


def _between(made: Call, reader: Call, view: View) -> str:
    """The path of a module that turned what the norm made into what the projection reads."""
    assert made.output is not None
    assert reader.input is not None
    for step in view.readers.get(made.output.number, ()):
        result = step.result()
        between = made.order < step.order < reader.order and not step.holds(reader)
        if between and result is not None and result.same(reader.input):
            return step.module
    return ""


def _batched(seen: Observed) -> torch.Tensor | None:
    """What was kept, [B, r, D] in float64."""
    kept = seen.kept.double()
    if kept.dim() == 2:
        kept = kept[None]
    return kept if kept.dim() == 3 else None


def _agrees(want: torch.Tensor, got: torch.Tensor, size: torch.Tensor, dtype: torch.dtype) -> bool:
    tolerance = min(_ROUNDINGS * torch.finfo(dtype).eps, _MOST)
    return bool(((want - got).abs() <= tolerance * (size + size.amax() * 0.01)).all())


def _fit(normed: Observed, read: Observed) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Scale and shift [B, 1, D] when each feature of ``read`` follows one line over the rows."""
    n, y = _batched(normed), _batched(read)
    if n is None or y is None or n.shape[1] < _FEWEST:
        return None
    middle_n, middle_y = n.mean(1, keepdim=True), y.mean(1, keepdim=True)
    spread = (n - middle_n).square().sum(1, keepdim=True)
    if not bool((spread > 0).all()):
        return None
    slope = ((n - middle_n) * (y - middle_y)).sum(1, keepdim=True) / spread
    shift = middle_y - slope * middle_n
    if not _agrees(slope * n + shift, y, (slope * n).abs() + shift.abs(), read.dtype):
        return None
    return slope - 1.0, shift


def _by_token(
    normed: Observed, reader: Call, view: View
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Scale and shift [B, r, D] when two parts of one earlier projection's rows give them."""
    assert reader.input is not None
    n, y = _batched(normed), _batched(reader.input)
    if n is None or y is None:
        return None
    for projection in view.projections.values():
        for call in projection.calls:
            made = call.output
            if made is None or call.order > reader.order or made.shape[:-1] != normed.shape[:-1]:
                continue
            pair = _parts(made, n, y, reader.input.dtype)
            if pair is not None:
                return pair
    return None


def _parts(
    made: Observed, n: torch.Tensor, y: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor] | None:
    rows, width = _batched(made), n.shape[-1]
    if rows is None or made.width % width or made.width < 2 * width:
        return None
    parts = rows.unflatten(-1, (-1, width)).unbind(-2)
    for scale in parts:
        rest = y - n * (1.0 + scale)
        size = (n * (1.0 + scale)).abs() + y.abs()
        for shift in parts:
            if shift is not scale and _agrees(shift, rest, size, dtype):
                return scale, shift
    return None


def sites(view: View, readers: Sequence[Projection]) -> Iterator[Site]:
    """The modulated norms that these projections read."""
    for reader in readers:
        found = site_of(reader, view)
        if isinstance(found, Site):
            yield found
