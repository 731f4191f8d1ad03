"""The KV memory of one node: a budget in bytes, reservations, and whole states in LRU order."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Container, Iterator
from dataclasses import dataclass

from flashrt.lab.engine.executor import State

Ids = tuple[int, ...]


@dataclass
class Entry:
    """A state that a pool keeps, found by exactly its token ids.

    ``pins`` counts the transfers that read or write it: a pinned entry is never evicted.
    ``arriving`` is not whole yet, ``leaving`` is being moved away: neither is found.
    ``event`` is the latest event that put it here or used it.
    """

    ids: Ids
    state: State
    bytes: int
    event: int
    pins: int = 0
    arriving: bool = False
    leaving: bool = False

    @property
    def usable(self) -> bool:
        """Whole, and staying."""
        return not (self.arriving or self.leaving)


class Pool:
    """Logical bytes of KV state on one node. ``used + free == budget`` always.

    A reservation belongs to an active request and covers all it can come to need; it is never
    evicted. Entries are what finished requests left.
    """

    def __init__(self, node: str, budget: int) -> None:
        self.node = node
        self.budget = budget
        self.used = 0
        self.leaving = 0
        self.reservations: dict[str, int] = {}
        self._entries: OrderedDict[Ids, Entry] = OrderedDict()
        self._lengths: Counter[int] = Counter()

    @property
    def free(self) -> int:
        """Bytes that nothing holds."""
        return self.budget - self.used

    def __iter__(self) -> Iterator[Entry]:
        """Entries, least recently used first."""
        return iter(self._entries.values())

    def get(self, ids: Ids) -> Entry | None:
        """The entry of exactly these ids, in any condition."""
        return self._entries.get(ids)

    def longest(self, ids: Ids) -> Entry | None:
        """The longest usable entry that is a whole proper prefix of ``ids``.

        Proper, because logits of the last position come from running it: a state has none.
        """
        for length in sorted((n for n in self._lengths if n < len(ids)), reverse=True):
            entry = self._entries.get(ids[:length])
            if entry is not None and entry.usable:
                return entry
        return None

    def reserve(self, request_id: str, amount: int) -> None:
        """Hold bytes for an active request."""
        self.reservations[request_id] = amount
        self.used += amount

    def release(self, request_id: str) -> None:
        """Give back what a request held."""
        self.used -= self.reservations.pop(request_id)

    def insert(self, entry: Entry) -> None:
        """Keep a state, as the most recently used."""
        self._entries[entry.ids] = entry
        self._lengths[len(entry.ids)] += 1
        self.used += entry.bytes

    def touch(self, entry: Entry, event: int) -> None:
        """A use: the entry becomes the most recently used."""
        self._entries.move_to_end(entry.ids)
        entry.event = event

    def remove(self, entry: Entry) -> None:
        """Drop a state and give its bytes back."""
        del self._entries[entry.ids]
        self._lengths[len(entry.ids)] -= 1
        if not self._lengths[len(entry.ids)]:
            del self._lengths[len(entry.ids)]
        self.used -= entry.bytes
        if entry.leaving:
            self.leaving -= entry.bytes

    def leave(self, entry: Entry) -> None:
        """The entry's bytes are being moved away; they are held until :meth:`remove`."""
        entry.leaving = True
        self.leaving += entry.bytes

    def victims(self, amount: int, spare: Container[Ids] = ()) -> list[Entry] | None:
        """Entries to evict, least recently used first, so that ``amount`` bytes come free.

        ``spare`` are not touched. Bytes that are leaving already count. ``None`` when evicting
        everything would not do: then nothing should be evicted at all.
        """
        missing = amount - self.free - self.leaving
        chosen: list[Entry] = []
        for entry in self:
            if not missing > 0:
                break
            if entry.usable and not entry.pins and entry.ids not in spare:
                chosen.append(entry)
                missing -= entry.bytes
        return None if missing > 0 else chosen
