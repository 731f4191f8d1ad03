"""What is true of an engine after every event."""

from __future__ import annotations

from flashrt.lab.engine.engine import Engine
from flashrt.lab.engine.invocation import Invocation, Phase
from flashrt.lab.engine.pool import Pool


class Broken(AssertionError):
    """An invariant does not hold: the engine is wrong, not its input."""


def check_invariants(engine: Engine) -> None:
    """Check budgets, active states, transfers and the count of requests.

    Raises :class:`Broken` that says which one does not hold.
    """
    for pool in engine.topology.pools():
        _budget(pool)
    _active(engine)
    _pins(engine)
    _requests(engine)


def _hold(condition: bool, what: str) -> None:
    if not condition:
        raise Broken(what)


def _budget(pool: Pool) -> None:
    entries = list(pool)
    held = sum(pool.reservations.values()) + sum(entry.bytes for entry in entries)
    leaving = sum(entry.bytes for entry in entries if entry.leaving)
    _hold(pool.used == held, f"{pool.node}: used is {pool.used} and {held} are held")
    _hold(pool.used + pool.free == pool.budget, f"{pool.node}: used + free is not the budget")
    _hold(0 <= pool.used <= pool.budget, f"{pool.node}: {pool.used} of {pool.budget} are used")
    _hold(pool.leaving == leaving, f"{pool.node}: leaving is {pool.leaving}, not {leaving}")


def _active(engine: Engine) -> None:
    admission = engine.admission
    device = engine.topology.device
    _hold(len(admission.active) <= admission.max_active, "more requests are active than may be")
    names = {invocation.request_id for invocation in admission.active}
    _hold(set(device.reservations) == names, "reservations are not those of the active requests")
    for invocation in admission.active:
        _state(engine, invocation, device.reservations[invocation.request_id])
    busy = [i for i in admission.active if i.phase is Phase.SERVICE]
    _hold(len(busy) == int(engine.service.busy), "service is not of exactly one request")
    waiting = all(invocation.phase is Phase.QUEUED for invocation in admission.queue)
    _hold(waiting, "a queued request is in another phase")


def _state(engine: Engine, invocation: Invocation, reserved: int) -> None:
    covered = invocation.done_positions
    name = invocation.request_id
    needed = covered * engine.executor.position_bytes
    _hold(needed <= reserved == invocation.reserved, f"{name}: its state has no reservation")
    if invocation.state is not None:
        own = invocation.state.token_ids == tuple(invocation.ids[:covered])
        _hold(own, f"{name}: its state is of other tokens")
    done = invocation.reused + invocation.computed + invocation.recomputed
    _hold(not engine.service.reuses or done == covered, f"{name}: {covered} positions, not {done}")


def _pins(engine: Engine) -> None:
    moving = [transfer.entry for transfer in engine.residency.transfers]
    moving += [t.arriving for t in engine.residency.transfers if t.arriving is not None]
    for pool in engine.topology.pools():
        for entry in pool:
            pins = sum(entry is other for other in moving)
            _hold(entry.pins == pins, f"{pool.node}: {entry.pins} pins, {pins} transfers")
            _hold(entry.usable or pins > 0, f"{pool.node}: a state moves in no transfer")
    held = sum(not _held(engine, entry) for entry in moving)
    _hold(held == 0, "a state that is being moved was evicted")


def _held(engine: Engine, entry: object) -> bool:
    """Whether either pool holds exactly this entry."""
    return any(entry is other for pool in engine.topology.pools() for other in pool)


def _requests(engine: Engine) -> None:
    register, admission = engine.register, engine.admission
    ended = register.completed + register.cancelled + register.refused
    _hold(
        register.submitted == len(register.live) + ended == len(register.order),
        "submitted is not live + completed + cancelled + refused",
    )
    _hold(len(register.outcomes) == ended, "an ended request has no outcome")
    scheduled = {i.request_id for i in (*admission.queue, *admission.active)}
    _hold(scheduled <= set(register.live), "a scheduled request is not alive")


def check_end(engine: Engine) -> None:
    """Check that nothing is left: every request ended and no byte is reserved.

    Raises :class:`Broken`.
    """
    check_invariants(engine)
    register = engine.register
    ended = register.completed + register.cancelled + register.refused
    _hold(register.submitted == ended, f"{register.submitted} were submitted and {ended} ended")
    _hold(not engine.topology.device.reservations, "bytes are reserved for nobody")
    _hold(not engine.residency.transfers, "a transfer never ended")
