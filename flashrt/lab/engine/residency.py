"""Where KV states are: look-up, room on the device, moves between the pools, what is kept."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from functools import partial

from flashrt.lab.engine.agenda import Agenda
from flashrt.lab.engine.executor import State
from flashrt.lab.engine.invocation import Invocation, Phase
from flashrt.lab.engine.journal import Journal
from flashrt.lab.engine.link import Path, Transfer
from flashrt.lab.engine.pool import Entry, Ids, Pool
from flashrt.lab.engine.topology import Topology
from flashrt.lab.records import EventKind


@dataclass(frozen=True)
class Found:
    """A cached state that a prompt can continue, and the pool that has it."""

    entry: Entry
    pool: Pool


@dataclass
class Residency:
    """The two pools and every state that is on its way between them.

    ``arrived`` is called with the request whose state came, and the event. ``freed`` is the latest
    event that gave device bytes back.
    """

    topology: Topology
    journal: Journal
    agenda: Agenda
    position_bytes: int
    arrived: Callable[[Invocation, int], None]
    transfers: list[Transfer] = field(default_factory=list)
    freed: int = -1

    def find(self, prompt: Ids) -> Found | None:
        """The longest whole prefix that is cached; the device before the host at equal length."""
        best: Found | None = None
        for pool in self.topology.pools():
            entry = pool.longest(prompt)
            if entry is not None and (best is None or len(entry.ids) > len(best.entry.ids)):
                best = Found(entry, pool)
        return best

    def room(self, amount: int, spare: Container[Ids], cause: int) -> bool:
        """Whether ``amount`` device bytes are free now; evicts, LRU first, where that will do.

        A victim that the host has, or has no room for, is dropped. Any other is moved there: its
        bytes come free when the transfer ends.
        """
        device = self.topology.device
        if device.free >= amount:
            return True
        for victim in device.victims(amount, spare) or ():
            self._evict(victim, spare, cause)
        return device.free >= amount

    def _evict(self, entry: Entry, spare: Container[Ids], cause: int) -> None:
        host = self.topology.host
        causes = (cause, entry.event)
        held = host.get(entry.ids)
        victims = host.victims(entry.bytes, spare) if held is None else None
        if victims is None:
            self._drop(self.topology.device, entry, causes)
            self.freed = entry.event
            return
        for victim in victims:
            self._drop(host, victim, (cause, victim.event))
        arriving = Entry(entry.ids, entry.state, entry.bytes, -1, pins=1, arriving=True)
        host.insert(arriving)
        self.topology.device.leave(entry)
        entry.pins += 1
        transfer = Transfer(self.topology.to_host, entry, -1, arriving=arriving)
        self.transfers.append(transfer)
        transfer.asked = self._tell("demoted", causes, entry, self.topology.device)

    def _drop(self, pool: Pool, entry: Entry, causes: tuple[int, ...]) -> None:
        pool.remove(entry)
        entry.event = self._tell("evicted", causes, entry, pool)

    def _tell(
        self,
        kind: EventKind,
        causes: tuple[int, ...],
        entry: Entry,
        place: Pool | Path,
        request_id: str | None = None,
    ) -> int:
        name = place.node if isinstance(place, Pool) else place.name
        return self.journal.write(
            kind,
            causes,
            request_id,
            state=entry.state.name,
            amount=entry.bytes,
            positions=len(entry.ids),
            place=name,
        )

    def claim(self, entry: Entry, claimant: Invocation) -> None:
        """The entry's bytes are to become part of a reservation: it is cached no more."""
        device = self.topology.device
        device.remove(entry)
        causes = (claimant.last_event, entry.event)
        entry.event = self._tell("claimed", causes, entry, device, claimant.request_id)

    def promote(self, entry: Entry, waiter: Invocation) -> None:
        """Ask for a host state to be moved into the reservation of ``waiter``."""
        entry.pins += 1
        self.transfers.append(
            Transfer(self.topology.to_device, entry, waiter.last_event, waiter=waiter)
        )

    def forget(self, waiter: Invocation) -> bool:
        """Take back a promotion that has not started. Whether there was one."""
        for transfer in self.transfers:
            if transfer.waiter is waiter and not transfer.running:
                transfer.entry.pins -= 1
                self.transfers.remove(transfer)
                return True
        return False

    def start_transfers(self) -> None:
        """Start each transfer whose links are free and that no earlier one waits for."""
        wanted: set[str] = set()
        for transfer in self.transfers:
            links = transfer.path.links
            ready = not any(link.busy or link.name in wanted for link in links)
            if not transfer.running and ready:
                self._start(transfer)
            elif not transfer.running:
                wanted.update(link.name for link in links)

    def _start(self, transfer: Transfer) -> None:
        transfer.running = True
        for link in transfer.path.links:
            link.busy = True
        waiter = transfer.waiter
        waited = tuple(
            link.last_event for link in transfer.path.links if link.last_event > transfer.asked
        )
        started = self._tell(
            "transfer_started",
            (transfer.asked, *waited),
            transfer.entry,
            transfer.path,
            waiter.request_id if waiter else None,
        )
        if waiter is not None:
            waiter.last_event = started
        due = self.journal.now + transfer.path.duration(transfer.entry.bytes)
        self.agenda.at(due, partial(self._end, transfer, started))

    def _end(self, transfer: Transfer, started: int) -> None:
        entry, waiter, arriving = transfer.entry, transfer.waiter, transfer.arriving
        self.transfers.remove(transfer)
        entry.pins -= 1
        if arriving is not None:
            self.topology.device.remove(entry)
            arriving.arriving = False
            arriving.pins -= 1
        if waiter is not None:
            waiter.phase = Phase.READY
            waiter.state = entry.state
            waiter.reused = len(entry.ids)
            waiter.transferred += len(entry.ids)
            waiter.transferred_bytes += entry.bytes
        for link in transfer.path.links:
            link.busy = False
        request_id = waiter.request_id if waiter else None
        ended = self._tell("transfer_completed", (started,), entry, transfer.path, request_id)
        for link in transfer.path.links:
            link.last_event = ended
        if arriving is not None:
            arriving.event = self.freed = ended
        else:
            self.topology.host.touch(entry, ended)
        if waiter is not None:
            self.arrived(waiter, ended)

    def release(self, invocation: Invocation, state: State | None, cause: int) -> None:
        """An ended request gives its reservation back and leaves ``state`` in the cache, if any.

        The state never needs more than the reservation, so nothing is evicted for it.
        """
        device = self.topology.device
        device.release(invocation.request_id)
        amount = invocation.reserved
        invocation.reserved = 0
        self.freed = self.journal.write(
            "released", (cause,), invocation.request_id, amount=amount, place=device.node
        )
        if state is None:
            return
        ids = state.token_ids
        held = device.get(ids)
        if held is None:
            held = Entry(ids, state, len(ids) * self.position_bytes, self.freed)
            device.insert(held)
        elif held.leaving:
            return
        kept = self._tell("retained", (self.freed,), held, device, invocation.request_id)
        device.touch(held, kept)
