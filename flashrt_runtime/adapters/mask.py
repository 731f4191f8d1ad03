"""What an attention mask allows: everything, a causal triangle, or a few ranges of keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashrt_runtime.reason import Because, Reason

if TYPE_CHECKING:
    import torch

NONE = "none"
CAUSAL = "causal"
KEY_RANGES = "key_ranges"
MOST_RANGES = 2


@dataclass(frozen=True)
class Mask:
    """``kind`` is none, causal or key_ranges; ``ranges`` is int64 [R, 2], half open, R <= 2."""

    kind: str
    ranges: torch.Tensor | None = None


def classify(mask: torch.Tensor | None, is_causal: bool, tq: int, tk: int) -> Mask | Because:
    """What a call of scaled_dot_product_attention allows, or why no structure says it.

    ``mask`` broadcasts to [..., tq, tk]: bool (true is allowed) or additive (0, or a negative
    number that leaves nothing). Reads the mask's values, so it is for eager calls.
    """
    if mask is None:
        return _unmasked(is_causal, tq, tk)
    allowed = allowed_keys(mask)
    if isinstance(allowed, Because):
        return allowed
    rows = allowed.expand(*allowed.shape[:-2], tq, tk).reshape(-1, tq, tk)
    if not bool((rows == rows[0]).all()):
        return Because(Reason.LAYOUT, "its mask differs between batch rows or heads")
    return _grid(rows[0])


def _grid(first: torch.Tensor) -> Mask | Because:
    """What one bool mask [tq, tk] allows."""
    if bool(first.all()):
        return Mask(NONE)
    if bool((first == _triangle(first)).all()):
        return Mask(CAUSAL)
    if not bool((first == first[0]).all()):
        return Because(Reason.LAYOUT, "the keys that its mask allows differ between queries")
    return _ranges(first[0])


def _unmasked(is_causal: bool, tq: int, tk: int) -> Mask | Because:
    if not is_causal:
        return Mask(NONE)
    if tq != tk:
        what = f"its causal mask begins at the first of {tk} keys for {tq} queries, not at the last"
        return Because(Reason.LAYOUT, what)
    return Mask(CAUSAL) if tq > 1 else Mask(NONE)


def allowed_keys(mask: torch.Tensor) -> torch.Tensor | Because:
    """The mask as bool, [..., rows, keys]; a mask that adds a bias to scores is refused."""
    import torch

    grid = mask if mask.dim() > 1 else mask[None]
    if grid.dtype == torch.bool:
        return grid
    lowest = torch.finfo(grid.dtype).min / 2
    shut, open_ = grid <= lowest, grid == 0
    if not bool((shut | open_).all()):
        return Because(Reason.LAYOUT, "its mask adds a bias to the scores")
    return open_


def _triangle(rows: torch.Tensor) -> torch.Tensor:
    import torch

    tq, tk = rows.shape
    return torch.ones(tq, tk, dtype=torch.bool, device=rows.device).tril(tk - tq)


def _ranges(row: torch.Tensor) -> Mask | Because:
    packed, count = pack(row)
    found = int(count)
    if found == 0:
        return Because(Reason.LAYOUT, "its mask allows no key")
    if found > MOST_RANGES:
        what = f"the keys that its mask allows lie in {found} ranges, {MOST_RANGES} at most"
        return Because(Reason.LAYOUT, what)
    return Mask(KEY_RANGES, packed[:found])


def pack(row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first two ranges of a bool row [Tk] as int64 [2, 2], and how many ranges there are.

    An absent range is empty at the row's end. Nothing is read back from the device.
    """
    import torch
    from torch.nn.functional import pad

    edges = pad(row.to(torch.int8), (1, 1)).diff()
    places = torch.arange(edges.shape[0], device=row.device)
    end = row.shape[0]
    starts = torch.where(edges == 1, places, end).sort().values[:MOST_RANGES]
    stops = torch.where(edges == -1, places, end).sort().values[:MOST_RANGES]
    return torch.stack((starts, stops), dim=-1), (edges == 1).sum()


def whole(tk: int, device: torch.device) -> Mask:
    """Every key, as one range."""
    import torch

    return Mask(KEY_RANGES, torch.tensor([[0, tk]], dtype=torch.int64, device=device))


def traced(mask: torch.Tensor, tq: int, tk: int) -> Mask:
    """Key ranges of a mask inside a captured graph: what :func:`classify` would refuse is an
    assertion on the device, and nothing is read back. Always two ranges: one alone is cut after
    its first key, so a single allowed key is an assertion too.
    """
    import torch

    grid = mask if mask.dim() > 1 else mask[None]
    allowed = grid if grid.dtype == torch.bool else grid == 0
    rows = allowed.expand(*allowed.shape[:-2], tq, tk).reshape(-1, tk)
    packed, count = pack(rows[0])
    cut = torch.stack((packed[0, 0], packed[0, 0] + 1, packed[0, 0] + 1, packed[0, 1]))
    ranges = torch.where(count == 1, cut.view(2, 2), packed)
    fits = (rows == rows[0]).all() & (count >= 1) & (count <= MOST_RANGES)
    fits = fits & (ranges[:, 0] < ranges[:, 1]).all()
    if grid.dtype != torch.bool:
        fits = fits & (allowed | (grid <= torch.finfo(grid.dtype).min / 2)).all()
    torch._assert_async(fits, "the mask is not one or two ranges of keys")
    return Mask(KEY_RANGES, ranges)
