"""A negotiated chain: a producer that emits under the scale its readers were bound for.

Between them travels a tensor whose values mean nothing without that scale, so the chain is one:
it is attached whole, a call runs all of it or none of it, and it is taken out whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt_runtime.guard import Outcome, judge
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.seat import SeamState

EMITS = -1


@dataclass(frozen=True)
class Link:
    """A seam's part in the chain ``unit``: it emits the wire or reads it.

    ``dtype`` is the wire's, ``scale`` what one step of it is worth (real value = scale × wire).
    """

    unit: str
    emits: bool
    scale: float
    dtype: torch.dtype


class Wire:
    """What is between the producer and its readers, from one call of the producer to the next."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.readers: list[SeamState] = []
        self.waiting: tuple[int, ...] = ()
        self.sent: Any = None
        self.emitted: bool | None = None  # what the producer did last; None before its first call
        self.leave: Callable[[], None] | None = None

    def join(self, state: SeamState) -> int:
        """Add a reader; returns its index."""
        self.readers.append(state)
        return len(self.readers) - 1

    def send(self, value: Any) -> None:
        """The producer emitted ``value``, and every reader is to read it once."""
        self.sent, self.emitted = value, True
        self.waiting = tuple(range(len(self.readers)))

    def hold(self) -> None:
        """The producer ran the host, so its readers run theirs."""
        self.sent, self.emitted, self.waiting = None, False, ()

    def take(self, value: Any, index: int) -> bool:
        """Whether ``value`` is what was sent and this reader has not read it yet."""
        if value is not self.sent or index not in self.waiting:
            return False
        self.waiting = tuple(i for i in self.waiting if i != index)
        if not self.waiting:
            self.sent = None
        return True

    @property
    def unread(self) -> tuple[str, ...]:
        """Seams that have not read what was sent last."""
        return tuple(self.readers[i].seam.id for i in self.waiting)

    def settle(self) -> None:
        """Before the next call: count readers that missed the last one, and leave if asked to."""
        missed, self.waiting, self.sent = self.waiting, (), None
        for index in missed:
            detail = "its producer emitted a tensor that it did not read"
            self.readers[index].fall(Because(Reason.SHARED_INPUT, detail))
        if self.leave is not None:
            self.leave()
            self.leave = None

    def depart(self, put_back: Callable[[], None]) -> None:
        """Put the hosts back now, or before the next call where a reader still has to read."""
        if self.waiting:
            self.leave = put_back
        else:
            put_back()


def traced(wire: Wire, index: int, value: Any, fit: bool) -> bool:
    """Whether a seat of a chain runs its body in the graph that is being traced."""
    if index != EMITS:
        return wire.take(value, index)
    wire.hold()
    return fit


def eager(
    state: SeamState,
    wire: Wire,
    index: int,
    value: Any,
    *,
    run: Callable[[], Any],
    host: Callable[[], Any],
) -> Any:
    """One eager call of a chain's seat: ``run`` its body or its ``host``.

    A reader follows its producer. Raises :class:`Refusal` (SHARED_INPUT) for a tensor in the wire's
    dtype that this chain did not send: no host can read it.
    """
    if index == EMITS:
        return _produce(state, wire, value, run, host)
    if wire.take(value, index):
        state.calls += 1
        return run()
    if getattr(value, "dtype", None) == state.contract.dtype:
        raise Refusal(
            Reason.SHARED_INPUT,
            "it was given quantised values that its own producer did not just emit",
            subject=state.seam.id,
            do=f"detach_unit({wire.unit!r}) and leave this chain to the host",
        )
    if not state.restored:
        if wire.emitted is False:
            state.dispatched += 1
            state.last_reason = str(Because(Reason.FORM, "its producer ran the host"))
        else:
            detail = "it was called with another tensor than its producer emitted"
            state.fall(Because(Reason.SHARED_INPUT, detail))
    return host()


def _produce(
    state: SeamState, wire: Wire, value: Any, run: Callable[[], Any], host: Callable[[], Any]
) -> Any:
    wire.settle()
    found = judge(state.contract, value)
    if not state.restored and found.outcome is Outcome.RUN:
        state.calls += 1
        out = run()
        wire.send(out)
        return out
    wire.hold()
    if not state.restored:
        state.account(found)
    return host()


def check_chains(links: Sequence[tuple[str, Link, int]]) -> None:
    """Refuse chains that are not whole: ``(seam id, link, members)`` of every swap with a link.

    Raises :class:`Refusal`: BINDING for a chain without exactly one producer and a reader, or a
    part of several members; CONFLICT when the scales or the dtypes differ.
    """
    chains: dict[str, list[tuple[str, Link, int]]] = {}
    for one in links:
        chains.setdefault(one[1].unit, []).append(one)
    for unit, parts in chains.items():
        emitting = [seam for seam, link, _ in parts if link.emits]
        if len(emitting) != 1 or len(parts) < 2:
            what = f"{len(emitting)} producers and {len(parts) - len(emitting)} readers"
            do = "attach every swap of the chain, or none"
            raise Refusal(Reason.BINDING, f"the chain is not whole: {what}", subject=unit, do=do)
        wide = [seam for seam, _, members in parts if members != 1]
        if wide:
            what = "it takes the place of several modules"
            raise Refusal(Reason.BINDING, f"{what} and is in the chain {unit}", subject=wide[0])
        first = parts[0][1]
        for seam, link, _ in parts:
            if link.scale != first.scale or link.dtype != first.dtype:
                what = f"{link.dtype} under {link.scale!r}, {parts[0][0]} {first.dtype} under "
                raise Refusal(Reason.CONFLICT, f"{what}{first.scale!r}", subject=seam)
