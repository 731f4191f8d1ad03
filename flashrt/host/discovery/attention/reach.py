"""What reaches the arguments of attention calls: outputs of modules as they are, or rotated.

One call is looked at whole while its tensors are there (:func:`proven`); all calls of a forward
together at a few positions (:func:`look`), which tells which module is which and no more. What is
not told here (another dtype, a rotation of another kind) is not refused by it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from flashrt.host.discovery.attention.heads import as_is, spread
from flashrt.host.discovery.attention.rotation import (
    Tables,
    memory,
    pairs,
    turned,
    usual,
    visible,
)

if TYPE_CHECKING:
    import torch

    from flashrt.host.discovery.attention.tap import Attended, Site
    from flashrt_runtime.adapters.plan import Argument

ROLES = ("query", "key", "value")
_ALL = 32  # of a call of so few positions, all are compared
_POSITIONS = 8  # of another, spread evenly, the first and the last among them
_MOST = 1 << 24  # values that are compared in all


class Said(NamedTuple):
    """A key of ``Attended.turned``: what holds of the argument ``role`` and a ``source``.

    The query and the key are what the source holds turned by the ``tables`` (their memory), the
    value is it as it is: ``seen`` at a few positions; ``whole`` where all was looked at.
    """

    what: str
    role: str
    source: int
    tables: Hashable


def some_of(count: int) -> list[int]:
    """The positions, of ``count``, that are compared where a few are enough."""
    few = count if count <= _ALL else _POSITIONS
    return [i * (count - 1) // max(1, few - 1) for i in range(few)]


def reaches(attended: Attended, role: str, source: torch.Tensor, by: Tables | None = None) -> bool:
    """Whether it was told, of all of it, that a source became the argument ``role`` of the call."""
    return attended.turned.get(Said("whole", role, id(source), _memory(by)), False)


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
    depth: int

    @property
    def kind(self) -> Hashable:
        """Equal for what can be compared at once."""
        x = self.source
        return self.role, self.at, x.shape, self.to.shape, x.dtype, x.device, self.memory

    def seen(self) -> None:
        """Write down that it is so at a few positions."""
        self.attended.turned[Said("seen", self.role, id(self.source), self.memory)] = True


def look(sites: Sequence[Site]) -> None:
    """Fill in ``turned`` of the attention calls of these sites with what reaches them."""
    kinds: dict[Hashable, list[_Asked]] = {}
    for site in sites:
        for attended in () if site.cut else site.attended:
            if attended.call.objection() is None and attended.intact():
                for one in _asked(site, attended):
                    kinds.setdefault(one.kind, []).append(one)
    _tell(kinds)


class Proof(NamedTuple):
    """Where in a site's ``children`` the source of an argument is, and which tables turn it.

    ``at`` is where the tables stand in what the site was given, ``None`` for the value.
    """

    role: str
    child: int
    at: tuple[Argument, Argument] | None


def proven(site: Site) -> list[Proof]:
    """What q, k and v of the one call of a site are, looked at whole; empty where it is not so.

    Each is what one child put out, in one shape or another; two tables turn q and k, visibly.
    """
    attended = site.attended[0]
    whole = [one for one in _asked(site, attended) if one.depth == 1 and _whole(one)]
    places = {(one.role, one.source.data_ptr()) for one in whole}
    turns = {one.memory for one in whole if one.tables is not None}
    if {role for role, _ in places} != set(ROLES) or len(places) != len(ROLES) or len(turns) != 1:
        return []
    query = next(one for one in whole if one.role == "query")
    ways = spread(query.source, query.to)
    if not all(visible(own[:, :, :1], to[:, :, :1]) for own, to, _ in ways):
        return []
    outputs = [id(child.output.tensor) if child.output else 0 for child in site.children]
    return [
        Proof(one.role, outputs.index(id(one.source)), one.tables.at if one.tables else None)
        for one in whole
    ]


def write_down(proofs: Sequence[Proof], site: Site) -> None:
    """Say of a site, as its tensors are now, what was proven of what they were."""
    attended = site.attended[0]
    count, width = attended.call.query.shape[2:]
    tables = {by.at: _memory(by) for by in pairs(site.given, count, width)}
    for proof in proofs:
        source = site.children[proof.child].output
        assert source is not None
        by = tables[proof.at] if proof.at else None
        for what in ("seen", "whole"):
            attended.turned[Said(what, proof.role, id(source.tensor), by)] = True


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
            source = child.output.tensor
            for role, to in arguments:
                at = _positions(source.shape, to.shape, role != "query")
                if at is None or source.dtype != to.dtype or source.device != to.device:
                    continue
                found.add(role)
                if role == "value":
                    yield _Asked(site, attended, role, source, at, to, None, None, depth)
                    continue
                for by, where in tables:
                    if _fits(by, source, at):
                        yield _Asked(site, attended, role, source, at, to, by, where, depth)
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


def _tell(kinds: Mapping[Hashable, Sequence[_Asked]]) -> None:
    """Write down those that are so at a few positions.

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
        for one, holds in zip(every, both, strict=True):
            if holds:
                one.seen()


def _compared(same: Sequence[_Asked], few: _Few) -> torch.Tensor:
    """Whether each holds at a few positions: bool [questions]."""
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
        return (own.unsqueeze(3) == each).reshape(count, -1).all(1)
    want = usual(own, _some(first.tables, few, count))
    holds = (want.unsqueeze(3) == each).reshape(count, -1).all(1)
    return holds & after[:, -1].reshape(count, -1).any(1)


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
