"""Rotate-half, verified from tables that a call was given and the tensors before and after."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt.host.discovery.attention.norms import agree
from flashrt_runtime.adapters.plan import Argument

if TYPE_CHECKING:
    import torch


_FACTOR = 0.004
_LAST = 8

_Place = tuple[str, tuple[int | str, ...]]


@dataclass(frozen=True)
class Tables:
    """cos and sin as they were given, [B or 1, T, R] in ``cos`` and ``sin``, and where."""

    cos: torch.Tensor
    sin: torch.Tensor
    at: tuple[Argument, Argument]

    @property
    def width(self) -> int:
        """How much of a head is rotated."""
        return int(self.cos.shape[-1])


def tensors(given: Mapping[str, Any]) -> Iterator[tuple[Argument, torch.Tensor]]:
    """Every tensor in a call's arguments, inside tuples, lists and mappings too."""
    for place, tensor in _held(given):
        yield Argument(*place), tensor


def _held(given: Mapping[str, Any]) -> Iterator[tuple[_Place, torch.Tensor]]:
    for name, value in given.items():
        for path, tensor in _inside(value, ()):
            yield (name, path), tensor


def _inside(
    value: Any, path: tuple[int | str, ...]
) -> Iterator[tuple[tuple[int | str, ...], torch.Tensor]]:
    import torch

    if value is None or isinstance(value, (bool, int, float, str)):
        return
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, (tuple, list)):
        for index, inner in enumerate(value):
            yield from _inside(inner, (*path, index))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, (str, int)):
                yield from _inside(inner, (*path, key))


def _flat(table: torch.Tensor) -> torch.Tensor | None:
    """[B or 1, T, R], or ``None`` for what is no such table."""
    if not table.is_floating_point() or table.dim() < 2:
        return None
    if table.dim() == 2:
        return table[None]
    while table.dim() > 3:
        one = next((d for d in range(1, table.dim() - 1) if table.shape[d] == 1), None)
        if one is None:
            return None
        table = table.squeeze(one)
    return table


def pairs(given: Mapping[str, Any], positions: int, width: int) -> Iterator[Tables]:
    """Neighbouring arguments of one shape [.., positions, R], R even and at most ``width``."""
    found = [each for each in _held(given) if each[1].dim() > 1 and each[1].shape[-1] <= width]
    for first, (at, cos) in enumerate(found):
        for also, sin in found[first + 1 :]:
            if cos.shape != sin.shape:
                continue
            flat_cos, flat_sin = _flat(cos), _flat(sin)
            if flat_cos is None or flat_sin is None or flat_cos.shape[1] != positions:
                continue
            if flat_cos.shape[2] <= width and flat_cos.shape[2] % 2 == 0:
                yield Tables(flat_cos, flat_sin, (Argument(*at), Argument(*also)))


def rotated(x: torch.Tensor, tables: Tables) -> torch.Tensor:
    """Rotate-half over the first R of D, in float32 at least; x is [B, T, H, D]."""
    import torch

    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    width = tables.width
    part, rest = wide[..., :width], wide[..., width:]
    low, high = part.chunk(2, dim=-1)
    cos, sin = (t.to(wide.dtype).unsqueeze(2) for t in (tables.cos, tables.sin))
    return torch.cat((part * cos + torch.cat((-high, low), dim=-1) * sin, rest), dim=-1)


def turns(before: torch.Tensor, after: torch.Tensor, tables: Tables, times: int = 1) -> bool:
    """Whether ``after`` is ``before`` rotated by these tables; both [B, T, H, D], all of it.

    Besides each element, to a few roundings, the size of the whole: a factor does not round. In
    ``after`` every head of ``before`` may be repeated, ``times`` in a row.
    """
    if tables.cos.shape[0] not in (1, before.shape[0]) or tables.cos.shape[1] != before.shape[1]:
        return False
    if _to_the_bit(before, after, tables, times):
        return True
    if times > 1:
        before = before.repeat_interleave(times, dim=2)
    if before.shape != after.shape or _plainly_not(before, after, tables):
        return False
    want = rotated(before, tables)
    made = after.to(want.dtype)
    if not agree(made, want, after.dtype, float(before.abs().mean())):
        return False
    factor = float((made * want).sum() / want.square().sum())
    return abs(factor - 1) <= min(32 * _rounding(after.dtype), _FACTOR)


def memory(*some: torch.Tensor) -> Hashable:
    """Equal for the same tensors, or views that read them in one way, while they are alive."""
    return tuple([(x.data_ptr(), x.shape, x.stride(), x.dtype) for x in some])


def turned(
    known: dict[Hashable, bool],
    before: torch.Tensor,
    after: torch.Tensor,
    tables: Tables,
    times: int = 1,
) -> bool:
    """:func:`turns`, asked once of the same memory. ``known`` lives no longer than the tensors."""
    key = (times, memory(before, after), memory(tables.cos, tables.sin))
    if key not in known:
        known[key] = turns(before, after, tables, times)
    return known[key]


def usual(x: torch.Tensor, tables: Tables) -> torch.Tensor:
    """Rotate-half over the first R of D in the way, and to the bit, that hosts usually do it.

    x is [B, T, H, D], of the dtype of the tables.
    """
    import torch

    width = tables.width
    cos, sin = tables.cos.unsqueeze(2), tables.sin.unsqueeze(2)
    low, high = x[..., : width // 2], x[..., width // 2 : width]
    want = x[..., :width] * cos
    want[..., : width // 2] -= high * sin[..., : width // 2]
    want[..., width // 2 :] += low * sin[..., width // 2 :]
    return torch.cat((want, x[..., width:]), dim=-1) if width < x.shape[3] else want


def _to_the_bit(before: torch.Tensor, after: torch.Tensor, tables: Tables, times: int) -> bool:
    """Whether the usual way to rotate gives just these bits, which are not all zero at the end."""
    import torch

    heads = before.shape[2]
    shape = (*before.shape[:2], heads * times, before.shape[3])
    kinds = {before.dtype, after.dtype, tables.cos.dtype, tables.sin.dtype}
    if tuple(after.shape) != shape or len(kinds) > 1 or not bool(after[:, -1].any()):
        return False
    both = after.unflatten(2, (heads, times)) if times > 1 else after.unsqueeze(3)
    for at in (slice(-1, None), slice(None)):  # the last position says no soon
        some = Tables(tables.cos[:, at], tables.sin[:, at], tables.at)
        y = both[:, at]
        if not torch.equal(usual(before[:, at], some).unsqueeze(3).expand_as(y), y):
            return False
    return True


def _plainly_not(before: torch.Tensor, after: torch.Tensor, tables: Tables) -> bool:
    """Whether three positions already differ by more than the size of the whole would allow."""
    import torch

    last = before.shape[1] - 1
    if last < _LAST:
        return False
    at = torch.tensor([0, last // 2, last], device=before.device)
    some = Tables(tables.cos.index_select(1, at), tables.sin.index_select(1, at), tables.at)
    want = rotated(before.index_select(1, at), some)
    size = float(torch.linalg.vector_norm(before.to(want.dtype))) / before.numel() ** 0.5
    return not agree(after.index_select(1, at).to(want.dtype), want, after.dtype, 2.0 * size)


def visible(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether a rotation moved anything: tables of angle 0 turn by halves as by neighbours."""
    before, after = before[:, -_LAST:], after[:, -_LAST:]  # the later, the further
    bound = float(before.abs().mean())
    return not agree(after.double(), before.double(), after.dtype, bound)


def _rounding(dtype: torch.dtype) -> float:
    import torch

    return float(torch.finfo(dtype).eps)


def neighbours(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether pairs of neighbouring elements, and not halves, keep their length."""

    def lengths(x: torch.Tensor, far: bool) -> torch.Tensor:
        wide = x.double()
        a, b = wide.chunk(2, dim=-1) if far else (wide[..., 0::2], wide[..., 1::2])
        return a.square() + b.square()

    if before.shape != after.shape or before.shape[-1] % 2:
        return False
    near = agree(lengths(after, False), lengths(before, False), after.dtype, 1e-3)
    return near and not agree(lengths(after, True), lengths(before, True), after.dtype, 1e-3)
