"""Keeps little of attending calls of which all was looked at while they ran.

Holding what every layer attends with takes memory that the forward would have used again, and costs
it more than all else that is done to observe it. So what reaches a call is told when it returns,
value for value; then every tensor of it is cut to the same few positions. What is left reads as one
call on a short sequence.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from flashrt.host.discovery.attention.reach import proven, some_of, write_down
from flashrt.host.discovery.attention.seen import Seen
from flashrt.host.discovery.projection import held

if TYPE_CHECKING:
    from flashrt.host.discovery.attention.tap import Child, Site, SlotCall

_SMALL = 1 << 16  # values; a table of angles has fewer

Shared = dict[int, tuple[Seen, torch.Tensor]]


class Thinner:
    """Cuts calls of which all was told. One that raises where it is looked at is kept whole."""

    def __init__(self) -> None:
        self._shared: Shared = {}  # what many calls are given stays one tensor

    def site(self, site: Site) -> None:
        """Cut a call that attended once, where all was told, and say so in ``site.cut``."""
        with suppress(Exception):  # a host's tensors may raise anything
            count = _positions(site)
            proofs = proven(site) if count and _left(site) else []
            if proofs:
                _cut(site, _Cut(count, self._shared))
                site.cut = count
                write_down(proofs, site)

    def around(self, site: Site) -> None:
        """Cut what a call was given, all attending calls in which were cut."""
        with suppress(Exception):
            site.given = _Cut(site.cut, self._shared)(site.given)


def _positions(site: Site) -> int:
    """How many positions a call has that may be cut; 0 for one that may not."""
    if len(site.attended) != 1 or site.loose or site.inner:
        return 0
    attended = site.attended[0]
    if attended.query.version < 0:  # writes are not counted
        return 0
    call, count = attended.call, int(attended.query.tensor.shape[-2])
    if call.attn_mask is not None or call.objection() is not None or not attended.intact():
        return 0
    if len(some_of(count)) == count or not count == call.key.shape[2] == call.value.shape[2]:
        return 0
    if any(slot.written for slot in site.slots):
        return 0
    return count if all(map(_projects, site.children)) else 0


def _projects(child: Child) -> bool:
    """Whether a child holds a matrix or hands on what it read, and nothing was written to it."""
    read, made = child.input, child.output
    if read is None or made is None or not (read.intact() and made.intact()):
        return False
    matrix = any(p.dim() == 2 for p in held(child.module).values())
    return matrix or read.tensor is made.tensor


def _left(site: Site) -> bool:
    """Whether what was attended is what the one child called after that reads, as it is."""
    attended = site.attended[0]
    last = site.children[attended.after :]
    read = last[0].input if len(last) == 1 else None
    want = attended.output.transpose(1, 2).flatten(2)
    whole = read is not None and read.tensor.numel() == want.numel()
    return read is not None and whole and torch.equal(read.tensor.reshape(want.shape), want)


def _cut(site: Site, cut: _Cut) -> None:
    """Cut all that a call holds, or raise and leave it as it was."""
    attended = site.attended[0]
    q, k, v = (cut.seen(one) for one in (attended.query, attended.key, attended.value))
    call = replace(attended.call, query=q.tensor, key=k.tensor, value=v.tensor)
    out = cut(attended.output)
    # what was told of memory that is let go is not told of what comes to lie there
    made = replace(attended, call=call, query=q, key=k, value=v, output=out, turned={})
    children = [cut.child(child) for child in site.children]
    slots = [cut.slot(slot) for slot in site.slots]
    given, output = cut(site.given), cut(site.output)
    site.attended, site.children, site.slots = (made,), children, slots
    site.given, site.output = given, output


class _UnclearError(Exception):
    """A tensor does not say which of its dims are positions."""


class _Cut:
    """Cuts tensors to a few of ``count`` positions, each once: one tensor stays one."""

    def __init__(self, count: int, shared: Shared) -> None:
        self._count = count
        self._at = some_of(count)
        self._shared = shared
        self._done: dict[int, torch.Tensor] = {}
        self._memory: dict[Hashable, torch.Tensor] = {}
        self._index: dict[torch.device, torch.Tensor] = {}

    def __call__(self, value: Any) -> Any:
        """The value with every tensor in it cut. Raises :class:`_UnclearError`."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self._done:
                self._done[id(value)] = self._tensor(value)
            return self._done[id(value)]
        if type(value) in (tuple, list):
            return type(value)([self(inner) for inner in value])
        if type(value) is dict:
            return {name: self(inner) for name, inner in value.items()}
        return value

    def seen(self, seen: Seen) -> Seen:
        """What was seen, cut."""
        return Seen.of(self(seen.tensor))

    def child(self, child: Child) -> Child:
        """A call of a child, cut."""
        read, made = (one and self.seen(one) for one in (child.input, child.output))
        return child._replace(input=read, output=made)

    def slot(self, slot: SlotCall) -> SlotCall:
        """A call of a slot, cut."""
        return replace(slot, given=self(slot.given), output=self(slot.output))

    def _tensor(self, x: torch.Tensor) -> torch.Tensor:
        dims = [dim for dim, size in enumerate(x.shape[:-1]) if size == self._count]
        if len(dims) > 1 or type(x) is not torch.Tensor:
            raise _UnclearError
        if not dims:
            return x
        known = self._shared.get(id(x))
        if known is not None and known[0].tensor is x and known[0].intact():
            return known[1]
        cut = self._few(x, dims[0])
        if x.numel() <= _SMALL:
            self._shared[id(x)] = Seen.of(x), cut
        return cut

    def _few(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        """A copy; of two tensors that are one memory in other shapes, one copy in both."""
        shape = (*x.shape[:dim], len(self._at), *x.shape[dim + 1 :])
        key = x.data_ptr(), x.dtype, x.numel(), math.prod(shape[:dim])
        if x.is_contiguous() and key in self._memory:
            return self._memory[key].view(shape)
        if x.device not in self._index:
            self._index[x.device] = torch.tensor(self._at, device=x.device)
        cut = x.detach().index_select(dim, self._index[x.device])
        if x.is_contiguous():
            self._memory[key] = cut
        return cut
