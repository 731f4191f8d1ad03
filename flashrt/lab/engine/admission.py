"""Which arrived requests become active: first come first served, each with a full reservation."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from flashrt.lab.engine.invocation import Invocation, Phase
from flashrt.lab.engine.journal import Journal
from flashrt.lab.engine.residency import Found, Residency


@dataclass
class Admission:
    """The queue in order of arrival, and the active requests in order of rotation.

    A reservation covers every position that the request can come to need, reused ones too: what
    it makes is a whole new snapshot. Continuing a state of the device takes no time; one of the
    host must be moved first. When a device state and the reservation that continues it can never
    stand side by side, the state's bytes become part of the reservation.
    ``moved`` is the latest event that let the queue move on.
    """

    journal: Journal
    residency: Residency
    max_active: int
    reuses: bool
    queue: deque[Invocation] = field(default_factory=deque)
    active: deque[Invocation] = field(default_factory=deque)
    moved: int = -1

    def admit(self) -> None:
        """Admit from the head of the queue while slots and bytes allow."""
        while self.queue and len(self.active) < self.max_active:
            if not self._try(self.queue[0]):
                return

    def leave(self, invocation: Invocation, event: int) -> None:
        """A request ended, wherever it was."""
        if invocation in self.queue:
            self.queue.remove(invocation)
        elif invocation in self.active:
            self.active.remove(invocation)
        self.moved = event

    def _try(self, head: Invocation) -> bool:
        device = self.residency.topology.device
        prompt = tuple(head.ids)
        found = self.residency.find(prompt) if self.reuses else None
        need = wanted = _reservation(head, self.residency)
        claimed = False
        if found is not None and found.pool is device:
            claimed = wanted + found.entry.bytes > device.budget
            need = wanted - found.entry.bytes if claimed else wanted
        spare = () if found is None else (found.entry.ids,)
        if not self.residency.room(need, spare, head.last_event):
            return False
        if found is not None and claimed:
            self.residency.claim(found.entry, head)
        self.queue.popleft()
        self.active.append(head)
        head.phase, head.reserved = Phase.READY, wanted
        device.reserve(head.request_id, wanted)
        waited = max(self.moved, self.residency.freed)
        causes = (head.last_event, waited if waited > head.last_event else -1)
        head.last_event = self.moved = self.journal.write(
            "admitted", causes, head.request_id, amount=wanted, place=device.node
        )
        if found is None:
            if self.reuses:
                head.last_event = self.journal.write(
                    "cache_miss", (head.last_event,), head.request_id
                )
            return True
        self._hit(head, found, claimed)
        return True

    def _hit(self, head: Invocation, found: Found, claimed: bool) -> None:
        entry, pool = found.entry, found.pool
        if pool is self.residency.topology.device:
            head.state, head.reused = entry.state, len(entry.ids)
        head.last_event = self.journal.write(
            "cache_hit",
            (head.last_event, entry.event),
            head.request_id,
            state=entry.state.name,
            amount=entry.bytes,
            positions=len(entry.ids),
            place=pool.node,
        )
        if claimed:
            return
        pool.touch(entry, head.last_event)
        if pool is not self.residency.topology.device:
            head.phase = Phase.TRANSFER
            self.residency.promote(entry, head)


def _reservation(head: Invocation, residency: Residency) -> int:
    """Bytes of the full reservation of a request."""
    return head.positions * residency.position_bytes
