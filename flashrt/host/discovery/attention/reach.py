"""What reaches the arguments of attention calls, looked at for all calls of a forward together.

Of each call a few positions are compared, to the bit, and of calls that are alike one is looked at
whole. What is not told here (another dtype, a rotation of another kind) is not refused by it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from flashrt.host.discovery.attention.alike import alike
from flashrt.host.discovery.attention.heads import as_is, spread
from flashrt.host.discovery.attention.rotation import (
    Tables,
    memory,
    pairs,
    turned,
    usual,
    visible_each,
)
from flashrt.host.discovery.attention.tap import Attended, Site
from flashrt.host.discovery.attention.thin import some_of

if TYPE_CHECKING:
    import torch

ROLES = ("query", "key", "value")
_MOST = 1 << 24  # values that are compared in all


class Said(NamedTuple):
    """A key of ``Attended.turned``: what holds of the argument ``role`` and a ``source``.

    The query and the key are what the source holds turned by the ``tables`` (their memory), the
    value is it as it is: ``seen`` at a few positions; ``whole`` where it, or a call alike, was
    looked at whole. ``moves``: the tables were seen to turn something of it.
    """

    what: str
    role: str
    source: int
    tables: Hashable


def reaches(attended: Attended, role: str, source: torch.Tensor, by: Tables | None = None) -> bool:
    """Whether it was told, of all of it, that a source became the argument ``role`` of the call."""
    return attended.turned.get(Said("whole", role, id(source), _memory(by)), False)


def moves(attended: Attended, role: str, source: torch.Tensor, by: Tables) -> bool:
    """Whether the tables were seen to turn something of an argument that a source reaches."""
    return attended.turned.get(Said("moves", role, id(source), _memory(by)), False)


def sources(attended: Attended, role: str) -> set[int]:
    """The ids of tensors that were seen to reach an argument, at a few positions at least."""
    said = [key for key in attended.turned if isinstance(key, Said)]
    return {key.source for key in said if (key.what, key.role) == ("seen", role)}


def _memory(tables: Tables | None) -> Hashable:
    return memory(tables.cos, tables.sin) if tables else None


class _Asked(NamedTuple):
    """Whether the output of a child of a frame, at this ``depth``, reaches an argument.

    ``at`` is the dim of the source's positions, ``to`` the argument [B, H, T, D].
    """

    site: Site
    attended: Attended
    role: str
    source: torch.Tensor
    at: int
    to: torch.Tensor
    tables: Tables | None
    memory: Hashable
    child: str
    depth: int

    @property
    def kind(self) -> Hashable:
        """Equal for what can be compared at once."""
        x = self.source
        return self.role, self.at, x.shape, self.to.shape, x.dtype, x.device, self.memory

    @property
    def question(self) -> Hashable:
        """What is asked, whoever is asked."""
        return self.role, self.at, self.source.dtype, self.tables and self.tables.at

    def say(self, what: str) -> None:
        """Write down that it is so."""
        self.attended.turned[Said(what, self.role, id(self.source), self.memory)] = True


def look(sites: Sequence[Site]) -> None:
    """Fill in ``turned`` of the attention calls of these sites with what reaches them."""
    kinds: dict[Hashable, list[_Asked]] = {}
    for site in sites:
        for attended in site.attended:
            if attended.call.objection() is None and attended.intact():
                for one in _asked(site, attended):
                    kinds.setdefault(one.kind, []).append(one)
    codes: dict[Hashable, int] = {}
    calls: dict[Hashable, int] = {}
    classes: dict[Hashable, list[_Asked]] = {}
    for one in _told(kinds):
        key = id(one.site), one.depth
        if key not in calls:
            code = one.site.code if one.depth == 1 else None
            code = alike(one.site, one.depth) if code is None else code
            calls[key] = codes.setdefault(code, len(codes))
        classes.setdefault((calls[key], one.child, one.question), []).append(one)
    for same in classes.values():
        # the first is the one of which all was kept
        if len(same) > 1 and _whole(same[0]):
            for one in same:
                one.say("whole")


def _asked(site: Site, attended: Attended) -> Iterator[_Asked]:
    """What may reach the call: outputs of modules that were called before it, by their shapes."""
    call = attended.call
    arguments = [(role, getattr(call, role)) for role in ROLES]
    positions, width = call.query.shape[2:]
    tables: list[tuple[Tables, Hashable]] = []
    found: set[str] = set()
    for depth, frame in enumerate(site.frames(), 1):
        tables = tables or [(t, _memory(t)) for t in pairs(frame.given, positions, width)]
        for child in frame.children[: attended.after] if frame is site else frame.children:
            if child.output is None:
                continue
            source, path = child.output.tensor, frame.relative(child)
            for role, to in arguments:
                at = _positions(source.shape, to.shape, role != "query")
                if at is None or source.dtype != to.dtype or source.device != to.device:
                    continue
                found.add(role)
                if role == "value":
                    yield _Asked(site, attended, role, source, at, to, None, None, path, depth)
                    continue
                for by, where in tables:
                    if _fits(by, source, at):
                        yield _Asked(site, attended, role, source, at, to, by, where, path, depth)
        if len(found) == len(ROLES):
            return


@lru_cache(maxsize=256)
def _positions(shape: torch.Size, to: torch.Size, repeated: bool) -> int | None:
    """The dim of a source's positions where it may be heads of ``to`` [B, H, T, D]."""
    batch, heads, count, width = to
    if len(shape) not in (3, 4) or shape[0] != batch or not shape.numel():
        return None
    if len(shape) == 3:
        own, odd = divmod(shape[2], width)
        ways = [] if odd else [(1, own)]
    else:
        ways = [(1, shape[2]), (2, shape[1])] if shape[3] == width else []
    dims = [d for d, own in ways if _divides(own, heads, repeated) and shape[d] <= count]
    return dims[0] if len(dims) == 1 else None


def _divides(own: int, heads: int, repeated: bool) -> bool:
    return own == heads or (repeated and 0 < own < heads and heads % own == 0)


def _fits(tables: Tables, source: torch.Tensor, at: int) -> bool:
    kinds = {source.dtype, tables.cos.dtype, tables.sin.dtype}
    batch, positions, _ = tables.cos.shape
    return len(kinds) == 1 and batch in (1, source.shape[0]) and positions == source.shape[at]


class _Few:
    """A few positions of tensors that stay as they are meanwhile, each taken once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int], torch.Tensor] = {}
        self._index: dict[tuple[int, int, torch.device], torch.Tensor] = {}

    def __call__(self, x: torch.Tensor, dim: int, newest: int) -> torch.Tensor:
        """Some of the ``newest`` positions, which are along ``dim``."""
        import torch

        key = (id(x), dim, newest)
        if key not in self._known:
            count = x.shape[dim]
            index = self._index.get((count, newest, x.device))
            if index is None:
                at = [count - newest + i for i in some_of(newest)]
                index = self._index[count, newest, x.device] = torch.tensor(at, device=x.device)
            self._known[key] = x.detach().index_select(dim, index)
        return self._known[key]


def _told(kinds: Mapping[Hashable, Sequence[_Asked]]) -> Iterator[_Asked]:
    """Those that are so at a few positions. Each is written down.

    What torch cannot compare is left out, and what is more than can be held at once.
    """
    import torch

    few, left = _Few(), _MOST
    answers: dict[torch.device, list[tuple[torch.Tensor, Sequence[_Asked]]]] = {}
    for same in kinds.values():
        to = same[0].to
        size = 2 * len(some_of(to.shape[2])) * (to.numel() // to.shape[2])
        some = same[: left // size]
        left -= size * len(some)
        try:
            flags = _compared(some, few) if some else None
        except Exception:  # tensors of a kind of their own: each is looked at by itself
            continue
        if flags is not None:
            answers.setdefault(flags.device, []).append((flags, some))
    for parts in answers.values():
        every = [one for _, some in parts for one in some]
        both = torch.cat([flags for flags, _ in parts]).tolist()
        for one, (holds, moved) in zip(every, both, strict=True):
            if holds and moved:
                one.say("moves")
            if holds:
                one.say("seen")
                yield one


def _compared(same: Sequence[_Asked], few: _Few) -> torch.Tensor:
    """Whether each holds at a few positions, and whether it moved: bool [questions, 2]."""
    import torch

    first, count = same[0], len(same)
    positions = first.source.shape[first.at]
    own = torch.cat([few(one.source, one.at, positions) for one in same])
    after = torch.cat([few(one.to, 2, positions) for one in same]).transpose(1, 2)
    if own.dim() == 3:
        own = own.unflatten(-1, (-1, after.shape[3]))
    elif first.at == 2:
        own = own.transpose(1, 2)
    each = after.unflatten(2, (own.shape[2], -1))
    if first.tables is None:
        holds = (own.unsqueeze(3) == each).reshape(count, -1).all(1)
        return torch.stack((holds, torch.zeros_like(holds)), dim=1)
    want = usual(own, _some(first.tables, few, count))
    holds = (want.unsqueeze(3) == each).reshape(count, -1).all(1)
    holds = holds & after[:, -1].reshape(count, -1).any(1)
    # where the last position is seen to move, the tables turn something
    moved = visible_each(own[:, -1].reshape(count, -1), each[:, -1, :, 0].reshape(count, -1))
    return torch.stack((holds, moved), dim=1)


def _some(tables: Tables, few: _Few, count: int) -> Tables:
    """A few positions of the tables, for ``count`` questions, each of a whole batch."""
    cos, sin = (few(t, 1, t.shape[1]) for t in (tables.cos, tables.sin))
    if cos.shape[0] > 1:
        cos, sin = cos.repeat(count, 1, 1), sin.repeat(count, 1, 1)
    return Tables(cos, sin, tables.at)


def _whole(one: _Asked) -> bool:
    """The answer for every position."""
    if one.tables is None:
        return as_is(one.source, one.to)
    known = one.attended.turned
    return any(turned(known, own, to, one.tables, n) for own, to, n in spread(one.source, one.to))
