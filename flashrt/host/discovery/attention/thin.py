"""Keeps little of attending calls that are alike one that is kept whole.

Holding what every layer attends with takes memory that the forward would have used again, and costs
it more than all else that is done to observe it. So of a call that is alike an earlier one, every
tensor is cut to the same few positions. What is left reads as one call on a short sequence.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from flashrt.host.discovery.attention.alike import alike, kind
from flashrt.host.discovery.attention.seen import Seen

if TYPE_CHECKING:
    from flashrt.host.discovery.attention.tap import Child, Site, SlotCall

_SHORT = 32  # a call of so few positions is kept whole
_POSITIONS = 8  # of another, spread evenly, the first and the last among them
_SMALL = 1 << 16  # values; a table of angles has fewer


def some_of(count: int) -> list[int]:
    """The positions that are looked at where a call alike was looked at whole."""
    few = count if count <= _SHORT else _POSITIONS
    return [i * (count - 1) // max(1, few - 1) for i in range(few)]


class Thinner:
    """Cuts calls that are alike one that is kept whole."""

    def __init__(self) -> None:
        self._whole: set[Hashable] = set()
        # what many calls are given stays one tensor
        self._shared: dict[int, tuple[Seen, torch.Tensor]] = {}

    def site(self, site: Site) -> None:
        """Cut a call that attended once, where one alike was kept, and say so in ``site.cut``."""
        count = _positions(site)
        if not count:
            return
        site.code = alike(site, 1)
        key = site.code, _calls(site)
        if key not in self._whole:
            self._whole.add(key)
            return
        cut = _Cut(count, self._shared)
        attended, call = site.attended[0], site.attended[0].call
        try:
            q, k, v = (cut.seen(one) for one in (attended.query, attended.key, attended.value))
            again = replace(call, query=q.tensor, key=k.tensor, value=v.tensor)
            out = cut(attended.output)
            made = replace(attended, call=again, query=q, key=k, value=v, output=out)
            children = [cut.child(child) for child in site.children]
            slots = [cut.slot(slot) for slot in site.slots]
            given, output = cut(site.given), cut(site.output)
        except _UnclearError:
            return
        site.attended, site.children, site.slots = (made,), children, slots
        site.given, site.output, site.cut = given, output, count

    def around(self, site: Site) -> None:
        """Cut what a call was given, all attending calls in which were cut."""
        try:
            site.given = _Cut(site.cut, self._shared)(site.given)
        except _UnclearError:
            return


def _positions(site: Site) -> int:
    """How many positions a call has that may be cut; 0 for one that may not."""
    if len(site.attended) != 1 or site.loose or site.inner:
        return 0
    attended = site.attended[0]
    call, count = attended.call, int(attended.query.tensor.shape[-2])
    if call.attn_mask is not None or call.objection() is not None or not attended.intact():
        return 0
    if count <= _SHORT or not count == call.key.shape[2] == call.value.shape[2]:
        return 0
    seen = [one for child in site.children for one in (child.input, child.output)]
    intact = all(one is None or one.intact() for one in seen)
    return count if intact and not any(slot.written for slot in site.slots) else 0


def _calls(site: Site) -> Hashable:
    """What a site called and attended with, by kind."""
    attended = site.attended[0]
    call = attended.call
    children = [
        (site.relative(c), *(kind(one.tensor) if one else None for one in (c.input, c.output)))
        for c in site.children
    ]
    slots = [(one.slot.name, one.slot.place, one.views, kind(one.output)) for one in site.slots]
    flags = call.is_causal, call.dropout_p, call.scale, attended.after
    arguments = kind(call.query), kind(call.key), kind(call.value), kind(site.output)
    return flags, arguments, tuple(children), tuple(slots)


class _UnclearError(Exception):
    """A tensor does not say which of its dims are positions."""


class _Cut:
    """Cuts tensors to a few of ``count`` positions, each once: one tensor stays one."""

    def __init__(self, count: int, shared: dict[int, tuple[Seen, torch.Tensor]]) -> None:
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
