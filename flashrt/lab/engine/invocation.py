"""One request while it is alive in the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

from flashrt.lab.engine.executor import State
from flashrt.lab.records import InferenceRequest


class Phase(Enum):
    """Where a request is. All but QUEUED and ENDED are active and hold a reservation."""

    QUEUED = "queued"
    TRANSFER = "transfer"
    READY = "ready"
    SERVICE = "service"
    BLOCKED = "blocked"
    ENDED = "ended"


@dataclass(eq=False)
class Invocation:
    """A submitted request and how far it is.

    ``ids`` is the prompt, then what was selected; ``positions`` what it can come to need.
    ``last_event`` is its own latest step: the first
    cause of its next one. ``kept`` is the state it will leave in the cache. ``trail`` is how far
    :class:`~flashrt.lab.engine.seen.Seen` has followed its ids, -1 before it has.
    """

    request_id: str
    request: InferenceRequest
    arrival_us: Fraction
    ids: list[int]
    prompt: int
    positions: int
    last_event: int
    phase: Phase = Phase.QUEUED
    state: State | None = None
    kept: State | None = None
    published: list[int] = field(default_factory=list)
    consumed: int = 0
    cancel_event: int = -1
    works: int = 0
    reserved: int = 0
    trail: int = -1
    reused: int = 0
    computed: int = 0
    recomputed: int = 0
    transferred: int = 0
    transferred_bytes: int = 0

    @property
    def budget(self) -> int:
        """Selections that it may make."""
        return self.request.generation.max_output_tokens

    @property
    def selected(self) -> int:
        """Selections made, published or not."""
        return len(self.ids) - self.prompt

    @property
    def done_positions(self) -> int:
        """Positions that its state covers."""
        return 0 if self.state is None else len(self.state.token_ids)
