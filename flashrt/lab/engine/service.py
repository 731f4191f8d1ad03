"""Serialized service: one computation at a time, active requests in rotation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial

from flashrt.lab.engine.admission import Admission
from flashrt.lab.engine.agenda import Agenda
from flashrt.lab.engine.decoding import greedy, softmax
from flashrt.lab.engine.executor import Executor, Step
from flashrt.lab.engine.invocation import Invocation, Phase
from flashrt.lab.engine.journal import Journal
from flashrt.lab.engine.seen import Seen
from flashrt.lab.engine.topology import Topology
from flashrt.lab.records import (
    ApiError,
    CacheComputation,
    EventKind,
    StopReason,
    TokenSelection,
)

End = Callable[[Invocation, StopReason, tuple[int, ...], ApiError | None], None]


@dataclass
class Service:
    """The one computing place. ``served`` is the latest completion, ``buffer`` the bound on tokens
    published and not consumed (none: no bound).

    A request's prompt but its last position is one computation; then each position is one, and
    ends with a selection. A full-prefix execution runs everything from nothing each time.
    """

    executor: Executor
    topology: Topology
    journal: Journal
    agenda: Agenda
    admission: Admission
    buffer: int | None
    reuses: bool
    end: End
    busy: bool = False
    served: int = -1
    seen: Seen = field(default_factory=Seen)
    softmax: Callable[[tuple[float, ...]], tuple[float, ...]] = field(
        default_factory=lambda: lru_cache(4096)(softmax)
    )

    def serve(self) -> None:
        """Begin the next computation: of the first active request that is ready."""
        active = self.admission.active
        ready = None if self.busy else next((i for i in active if i.phase is Phase.READY), None)
        if ready is not None:
            active.remove(ready)
            active.append(ready)
            self._begin(ready)

    def _begin(self, invocation: Invocation) -> None:
        at = invocation.done_positions
        if at == invocation.prompt - 1:
            invocation.kept = invocation.state
        prefill = self.reuses and at < invocation.prompt - 1
        inputs = tuple(invocation.ids[at : invocation.prompt - 1 if prefill else None])
        step = self.executor.run(inputs, invocation.state)
        work_id = f"{invocation.request_id}/{invocation.works}"
        invocation.works += 1
        invocation.phase = Phase.SERVICE
        self.busy = True
        waited = self.served if self.served > invocation.last_event else -1
        invocation.last_event = self.journal.write(
            "compute_started",
            (invocation.last_event, waited),
            invocation.request_id,
            work_id=work_id,
            state=None if invocation.state is None else invocation.state.name,
            positions=len(inputs),
        )
        due = self.journal.now + self.topology.service_us(step.nodes)
        self.agenda.at(due, partial(self._finish, invocation, step, inputs, work_id))

    def _finish(
        self, invocation: Invocation, step: Step, inputs: tuple[int, ...], work_id: str
    ) -> None:
        before = invocation.state
        self._count(invocation, inputs)
        if self.reuses:
            invocation.state = step.state
        self.busy = False
        invocation.phase = Phase.READY
        self.journal.keeper.computation(
            CacheComputation(
                work_id,
                inputs,
                step.nodes,
                None if before is None else before.name,
                step.state.name,
                invocation.request_id,
            )
        )
        self.served = invocation.last_event = self.journal.write(
            "compute_completed",
            (invocation.last_event,),
            invocation.request_id,
            work_id=work_id,
            state=step.state.name,
            positions=len(inputs),
        )
        if invocation.cancel_event >= 0:
            causes = (invocation.last_event, invocation.cancel_event)
            self.end(invocation, "cancelled", causes, None)
        elif len(step.state.token_ids) == len(invocation.ids):
            self._select(invocation, step, work_id)

    def _count(self, invocation: Invocation, inputs: tuple[int, ...]) -> None:
        at = invocation.trail
        if at < 0 or not self.reuses:
            known = () if invocation.state is None else invocation.state.token_ids
            at, _ = self.seen.follow(0, known)
        invocation.trail, new = self.seen.follow(at, inputs)
        invocation.computed += new
        invocation.recomputed += len(inputs) - new

    def _select(self, invocation: Invocation, step: Step, work_id: str) -> None:
        request_id = invocation.request_id
        chosen = greedy(step.logits)
        if chosen is None:
            error = ApiError(
                "TokenSelection.raw_logits",
                "every score is finite",
                f"computation {work_id} gave one that is not",
                request_id,
            )
            self.end(invocation, "failed", (invocation.last_event,), error)
            return
        number = invocation.selected
        self.journal.keeper.selection(
            lambda: TokenSelection(
                step.logits, chosen, self.softmax(step.logits), request_id, work_id, number
            )
        )
        invocation.ids.append(chosen)
        self._step(invocation, "selected", work_id)
        if chosen == self.executor.turn_end:
            self.end(invocation, "turn_end", (invocation.last_event,), None)
            return
        invocation.published.append(chosen)
        self._step(invocation, "published", work_id)
        if invocation.selected == invocation.budget:
            self.end(invocation, "budget", (invocation.last_event,), None)
        elif len(invocation.ids) > self.executor.context:
            self.end(invocation, "context_limit", (invocation.last_event,), None)
        elif self.full(invocation):
            invocation.phase = Phase.BLOCKED
            invocation.last_event = self.journal.write(
                "publication_blocked", (invocation.last_event,), request_id
            )

    def _step(self, invocation: Invocation, kind: EventKind, work_id: str) -> None:
        invocation.last_event = self.journal.write(
            kind, (invocation.last_event,), invocation.request_id, work_id=work_id
        )

    def full(self, invocation: Invocation) -> bool:
        """Whether nothing more can be published until the customer consumes."""
        return (
            self.buffer is not None
            and len(invocation.published) - invocation.consumed >= self.buffer
        )
