"""Links, and states on their way over them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from flashrt.lab.engine.invocation import Invocation
from flashrt.lab.engine.pool import Entry


@dataclass
class Link:
    """One exclusive capacity: a startup delay and a rate, for one transfer at a time.

    ``last_event`` is the completion that freed it last, -1 when it was never used.
    """

    name: str
    bytes_per_us: Fraction
    latency_us: Fraction
    busy: bool = False
    last_event: int = -1


@dataclass(frozen=True)
class Path:
    """Links in the order that bytes pass them, to the pool of ``target``.

    Bytes stream through: nothing is stored on the way, so all links are held together.
    """

    links: tuple[Link, ...]
    target: str

    @property
    def name(self) -> str:
        """The links' names in order."""
        return "+".join(link.name for link in self.links)

    def duration(self, amount: int) -> Fraction:
        """Startup of every link plus bytes over the slowest rate, in virtual microseconds."""
        slowest = min(link.bytes_per_us for link in self.links)
        return sum((link.latency_us for link in self.links), Fraction(0)) + amount / slowest


@dataclass
class Transfer:
    """One state on its way. ``asked`` is the event that asked for it.

    A promotion fills the reservation of ``waiter``; a demotion fills ``arriving`` on the host.
    Bytes are held at both ends from when it is asked for until it ends.
    """

    path: Path
    entry: Entry
    asked: int
    waiter: Invocation | None = None
    arriving: Entry | None = None
    running: bool = False
