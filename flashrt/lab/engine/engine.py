"""The engine: discrete events in exact virtual time over one workload and its customers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from flashrt.lab.engine.admission import Admission
from flashrt.lab.engine.agenda import Agenda
from flashrt.lab.engine.execution import Execution
from flashrt.lab.engine.executor import Executor
from flashrt.lab.engine.invocation import Invocation, Phase
from flashrt.lab.engine.journal import Everything, Journal, Keeper
from flashrt.lab.engine.limits import Limits
from flashrt.lab.engine.register import Register
from flashrt.lab.engine.residency import Residency
from flashrt.lab.engine.service import Service
from flashrt.lab.engine.topology import topology
from flashrt.lab.records import (
    ApiError,
    CacheEvent,
    CancelAction,
    ConsumeAction,
    CustomerInteraction,
    InferenceRequest,
    KVResidencySystemConfig,
    Placement,
    RequestArrival,
    ResourceGraph,
    StopReason,
    SubmitAction,
    Workload,
)
from flashrt_runtime.reason import Reason, Refusal

Root = RequestArrival | SubmitAction | ConsumeAction | CancelAction


class Engine:
    """One execution, to be run once.

    At one instant completions come first, in the order they were begun; then arrivals of the
    workload and actions of customers, each in array order; then scheduling: admission, transfers,
    service. Only arrivals and actions are events without causes. The first cause of any other event
    of a request is that request's own step before it; the rest say what it waited for.

    ``keeper`` takes the evidence (all of it is kept unless one is given). ``watch(engine, event)``
    is called after each event.

    Raises :class:`Refusal` (CONFLICT) for two requests of one name and for a graph or a placement
    that does not fit.
    """

    def __init__(
        self,
        system: KVResidencySystemConfig,
        executor: Executor,
        workload: Workload[RequestArrival] | None = None,
        customers: CustomerInteraction | None = None,
        graph: ResourceGraph | None = None,
        *,
        placement: Placement | None = None,
        keeper: Keeper | None = None,
        watch: Callable[[Engine, CacheEvent], None] | None = None,
    ) -> None:
        self.executor = executor
        self.keeper: Keeper = Everything() if keeper is None else keeper
        self.roots = _roots(workload, customers)
        self.topology = topology(system, graph, placement)
        self.agenda = Agenda()
        self.journal = Journal(
            self.keeper, None if watch is None else lambda event: watch(self, event)
        )
        reuses = system.execution.implementation == "cached"
        retention = system.kv_cache.retention_policy
        self.residency = Residency(
            self.topology, self.journal, self.agenda, executor.position_bytes, self._arrived
        )
        self.register = Register(self.journal, self.residency, executor.display, retention)
        self.limits = Limits(system.ceilings, executor, self.topology.device.budget)
        self.admission = Admission(
            self.journal, self.residency, system.scheduling.max_active_requests, reuses
        )
        self.service = Service(
            executor,
            self.topology,
            self.journal,
            self.agenda,
            self.admission,
            system.ceilings.publication_buffer_tokens,
            reuses,
            self._end,
        )

    def run(self) -> Execution:
        """Run until nothing is left to happen.

        Raises :class:`Refusal` (CONFLICT) the second time.
        """
        if self.journal.count:
            raise Refusal(Reason.CONFLICT, "it ran before", subject="engine", do="make another")
        waiting = iter(self.roots)
        root = next(waiting, None)
        started: Fraction | None = None
        while True:
            due = self.agenda.next_us
            times = [at for at in (due, None if root is None else _time(root)) if at is not None]
            if times:
                self.journal.now = min(times)
                started = self.journal.now if started is None else started
                while self.agenda.next_us == self.journal.now:
                    self.agenda.pop()()
                while root is not None and _time(root) == self.journal.now:
                    self._take(root)
                    root = next(waiting, None)
            elif not self._fail_stalled():
                break
            self.admission.admit()
            self.residency.start_transfers()
            self.service.serve()
        return self._evidence(Fraction(0) if started is None else started)

    def _evidence(self, started: Fraction) -> Execution:
        kept = self.keeper
        held = kept if isinstance(kept, Everything) else Everything()
        register = self.register
        return Execution(
            tuple(held.events),
            tuple(held.computations),
            tuple(held.selections),
            tuple(register.outcomes[name] for name in register.order),
            tuple(register.errors),
            tuple(register.ledger[name] for name in register.order),
            started,
            self.journal.now,
        )

    def _take(self, root: Root) -> None:
        match root:
            case RequestArrival():
                self._submit(self.journal.write("arrival", (), root.request_id), root)
            case SubmitAction():
                self._submit(self.journal.write("action", (), root.request_id), root)
            case ConsumeAction():
                self._consume(self.journal.write("action", (), root.request_id), root)
            case CancelAction():
                self._cancel(self.journal.write("action", (), root.request_id), root)

    def _submit(self, event: int, root: RequestArrival | SubmitAction) -> None:
        request: InferenceRequest = root.request
        ids = list(self.executor.encode(request.text))
        invocation = Invocation(root.request_id, request, self.journal.now, ids, len(ids), 0, event)
        invocation.positions = self.limits.positions(invocation)
        error = self.limits.refusal(invocation, self.register.accepted)
        self.register.add(invocation)
        if error is not None:
            self._end(invocation, "refused", (event,), error)
            return
        self.register.accepted += 1
        self.admission.queue.append(invocation)
        invocation.last_event = self.journal.write("queued", (event,), root.request_id)

    def _consume(self, event: int, action: ConsumeAction) -> None:
        request_id, count = action.request_id, action.consumed_tokens
        invocation = self.register.live.get(request_id)
        before = self.register.consumed(request_id)
        if before is None:
            self._reject(event, request_id, "a customer consumes what was submitted", "it was not")
        elif count < before:
            what = f"{count} comes after {before}"
            self._reject(event, request_id, "cumulative consumption never goes back", what)
        elif invocation is None:
            self.register.read[request_id] = count
            self.journal.write("consumed", (event,), request_id)
        else:
            self._consumed(invocation, count, event)

    def _consumed(self, invocation: Invocation, count: int, event: int) -> None:
        invocation.consumed = count
        if invocation.phase is Phase.BLOCKED and not self.service.full(invocation):
            invocation.phase = Phase.READY
            invocation.last_event = self.journal.write(
                "consumed", (invocation.last_event, event), invocation.request_id
            )
        else:
            self.journal.write("consumed", (event,), invocation.request_id)

    def _cancel(self, event: int, action: CancelAction) -> None:
        request_id = action.request_id
        invocation = self.register.live.get(request_id)
        if invocation is None and request_id not in self.register.outcomes:
            self._reject(event, request_id, "a customer cancels what was submitted", "it was not")
        elif invocation is None or invocation.cancel_event >= 0:
            self.journal.write("ignored", (event,), request_id)
        elif invocation.phase is Phase.SERVICE or (
            invocation.phase is Phase.TRANSFER and not self.residency.forget(invocation)
        ):
            invocation.cancel_event = event
        else:
            self._end(invocation, "cancelled", (invocation.last_event, event), None)

    def _reject(self, event: int, request_id: str, rule: str, message: str) -> None:
        self.register.errors.append(
            ApiError("CustomerInteraction.actions", rule, message, request_id)
        )
        self.journal.write("rejected", (event,), request_id)

    def _arrived(self, invocation: Invocation, event: int) -> None:
        invocation.last_event = event
        if invocation.cancel_event >= 0:
            self._end(invocation, "cancelled", (event, invocation.cancel_event), None)

    def _end(
        self,
        invocation: Invocation,
        stop: StopReason,
        causes: tuple[int, ...],
        error: ApiError | None,
    ) -> None:
        self.register.end(invocation, stop, causes, error, self.admission.leave)

    def _fail_stalled(self) -> bool:
        """Fail the requests that wait for a consumption which will never come, if any do."""
        stalled = tuple(self.admission.active)
        for invocation in stalled:
            error = ApiError(
                "SystemCeilings.publication_buffer_tokens",
                "what is published is consumed before more is",
                f"{len(invocation.published)} published, {invocation.consumed} consumed, "
                "and no action follows",
                invocation.request_id,
            )
            self._end(invocation, "failed", (invocation.last_event,), error)
        return bool(stalled)


def _time(root: Root) -> Fraction:
    return root.arrival_us if isinstance(root, RequestArrival) else root.time_us


def _roots(
    workload: Workload[RequestArrival] | None, customers: CustomerInteraction | None
) -> list[Root]:
    """Arrivals, then actions, in order of time; array order breaks ties."""
    roots: list[Root] = [*(workload.requests if workload else ())]
    roots += customers.actions if customers else ()
    names = [r.request_id for r in roots if isinstance(r, RequestArrival | SubmitAction)]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise Refusal(
                Reason.CONFLICT,
                f"two requests are named {name}",
                subject="RequestArrival.request_id",
                do="give each request a name of its own",
            )
        seen.add(name)
    return sorted(roots, key=_time)
