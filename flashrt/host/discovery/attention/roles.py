"""Which of three projections are q, k and v: told by the argument that their values reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from flashrt.host.discovery.attention.reach import ROLES, sources
from flashrt.host.discovery.attention.tap import Attended, Child, Site

if TYPE_CHECKING:
    import torch

Modules = Sequence["torch.nn.Module"]

_POSITIONS = 4
_HOPS = 2  # a norm, and one more module that only hands on


def roles(sites: Sequence[Site], modules: Modules) -> tuple[int, ...] | None:
    """Which of three modules are q, k and v, or ``None`` where that was not seen or is not sure.

    A projection reaches an argument of an attention call when, at every position looked at, the
    inner products between its heads are those of the argument's heads but for one factor. Norms
    in between are followed; a rotation of any kind keeps inner products. Where the values
    themselves were followed to the bit, they tell.
    """
    told = {_told(site, modules, attended) for site in sites for attended in site.attended}
    if len(told) == 1 and None not in told:
        return told.pop()
    found: set[tuple[int, ...]] = set()
    for site in sites:
        for attended in site.attended:
            made = _made(site, modules, attended)
            found |= set(_fitting(attended, made)) if made else set()
    return found.pop() if len(found) == 1 else None


def _told(site: Site, modules: Modules, attended: Attended) -> tuple[int, ...] | None:
    """The modules that query, key and value were seen to come from, where each is one of its own.

    Each is what a module put out, or what a norm of heads made of just that.
    """
    found: list[int] = []
    for role in ROLES:
        reached = sources(attended, role)
        last = [
            child
            for frame in site.frames()
            for child in (frame.children if reached else ())
            if child.output is not None and id(child.output.tensor) in reached
        ]
        ends = {_end(site, child, modules) for child in last}
        end = ends.pop() if len(ends) == 1 else None
        if end is None:
            return None
        found.append(end)
    return tuple(found) if len({*found}) == len(ROLES) else None


def _end(site: Site, child: Child, modules: Modules) -> int | None:
    """Which of the modules put this out, itself or by way of one that reads just what it did."""
    for _ in range(1 + _HOPS):
        if child.module in modules:
            return modules.index(child.module)
        read = child.input.tensor if child.input is not None else None
        before = [
            other
            for frame in site.frames()
            for other in frame.children
            if read is not None and other.output is not None and other is not child
            if _is(read, other.output.tensor)
        ]
        if len(before) != 1:
            return None
        child = before[0]
    return None


def _is(read: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether one is the other's memory, in another shape at most."""
    same = read.dtype == tensor.dtype and read.numel() == tensor.numel()
    return same and read.data_ptr() == tensor.data_ptr()


def _made(site: Site, modules: Modules, attended: Attended) -> list[list[torch.Tensor]] | None:
    """What each module put out in this call or one around it, and what was made of that."""
    children: list[Child] = []
    for frame in site.frames():
        children += frame.children
        own = {child.module: child for child in frame.children if child.module in modules}
        if len(own) == len(modules):
            return [list(_onward(own[module], children, attended)) for module in modules]
    return None


def _onward(child: Child, children: Sequence[Child], attended: Attended) -> Iterator[torch.Tensor]:
    made = [child.output.tensor] if child.output is not None else []
    made += [half for whole in made for half in _halves(whole, attended)]
    yield from made
    for _ in range(_HOPS):
        made = [
            other.output.tensor
            for other in children
            if other is not child and other.input is not None and other.output is not None
            if any(_holds(other.input.tensor, tensor) for tensor in made)
        ]
        yield from made


def _halves(whole: torch.Tensor, attended: Attended) -> tuple[torch.Tensor, ...]:
    """The two parts of every head, where each has twice the size of one that attends: a gate's."""
    heads, size = attended.call.query.shape[-3], attended.call.query.shape[-1]
    if whole.dim() != 3 or whole.shape[-1] != 2 * heads * size:
        return ()
    return whole.unflatten(-1, (heads, 2 * size)).split(size, dim=-1)


def _holds(read: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether one is the other in another shape, or with its heads before its positions."""
    import torch

    if read.dtype != tensor.dtype or read.numel() != tensor.numel():
        return False
    if _is(read, tensor):
        return True
    flat = tensor.reshape(-1)
    if torch.equal(read.reshape(-1), flat):
        return True
    return read.dim() == 4 and torch.equal(read.transpose(1, 2).reshape(-1), flat)


class _Heads:
    """A few positions of [B, T, H, D] in double, where they are small."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x

    @cached_property
    def products(self) -> np.ndarray:
        """Inner products of heads, [B, T, H, H]."""
        made: np.ndarray = self.x @ self.x.swapaxes(-1, -2)
        return made


class _Few:
    """Positions of tensors that stay as they are meanwhile, each taken once."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], _Heads] = {}

    def __call__(self, x: torch.Tensor, at: Sequence[int]) -> _Heads:
        import torch

        key = (x.data_ptr(), x.shape, x.stride(), x.dtype, *at)
        if key not in self._known:
            index = torch.tensor(at, device=x.device)
            taken = x.detach().index_select(1, index).to("cpu", torch.float64)
            self._known[key] = _Heads(taken.numpy())
        return self._known[key]


def _fitting(
    attended: Attended, made: Sequence[Sequence[torch.Tensor]]
) -> Iterator[tuple[int, ...]]:
    call = attended.call
    if not call.query.dim() == call.key.dim() == call.value.dim() or call.query.dim() not in (3, 4):
        return
    given = [t if t.dim() == 4 else t[None] for t in (call.query, call.key, call.value)]
    few = _Few()
    reach = [
        [any(_reaches(source, to, few, repeated=i > 0) for source in sources) for sources in made]
        for i, to in enumerate(given)
    ]
    for order in permutations(range(3)):
        if all(reach[i][one] for i, one in enumerate(order)):
            yield order


def _reaches(source: torch.Tensor, to: torch.Tensor, few: _Few, *, repeated: bool) -> bool:
    """Whether ``source`` became ``to`` [B, H, T, D]; with its heads ``repeated``, at most."""
    batch, heads, positions, size = to.shape
    return any(
        _reads_as(own, to, source.dtype, few)
        for own in _readings(source, batch, size)
        if own.shape[1] <= positions and heads % own.shape[2] == 0
        if repeated or own.shape[2] == heads
    )


def _reads_as(own: torch.Tensor, to: torch.Tensor, dtype: torch.dtype, few: _Few) -> bool:
    times, count = to.shape[1] // own.shape[2], own.shape[1]
    at = sorted({*range(0, count, max(1, count // _POSITIONS)), count - 1})
    mine = few(own, at)
    for first in dict.fromkeys((to.shape[2] - count, 0)):  # after what a cache held, or before
        whole = few(to.transpose(1, 2), [first + i for i in at])
        ways = [whole]
        if times > 1:
            ways = [_Heads(whole.x[:, :, ::times]), _Heads(whole.x[:, :, : own.shape[2]])]
        if any(_alike(mine, way, dtype) for way in ways):
            return True
    return False


def _readings(source: torch.Tensor, batch: int, size: int) -> Iterator[torch.Tensor]:
    """What a projection or a norm of heads put out as [B, T, H, D], in every way that fits."""
    if not source.is_floating_point() or not source.numel():
        return
    width, rank = source.shape[-1], source.dim()
    if rank in (2, 3) and width % size == 0 and source.numel() % (batch * width) == 0:
        yield source.reshape(batch, -1, width // size, size)
    if width == size and rank == 3 and batch == 1:
        yield source[None]
    if width == size and rank == 4 and source.shape[0] == batch:
        yield source
        yield source.transpose(1, 2)


def _alike(mine: _Heads, other: _Heads, dtype: torch.dtype) -> bool:
    import torch

    if np.array_equal(mine.x, other.x):
        return True
    a, b = mine.products, other.products
    size = float(np.vdot(a, a))
    factor = float(np.vdot(a, b)) / size if size else 0.0
    if not factor > 0:
        return False
    if a.size < _POSITIONS and abs(factor - 1) > 32 * torch.finfo(dtype).eps:
        return False  # so few numbers are proportional by chance
    want = a * factor
    typical = max(float(np.abs(b).mean()), float(np.abs(want).mean()) * 1e-2)
    most = min(32 * torch.finfo(dtype).eps, 0.05) * (np.abs(want) + typical)
    return bool((np.abs(b - want) <= most).all())
