"""Whether the accounts of one record agree: events, computations, choices, outcomes and ledger.

They tell of the same work. What one of them says and another does not was lost, added or changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import isclose

from flashrt.lab.execution.file import StoredExecution
from flashrt.lab.records import (
    CacheEvent,
    EventKind,
    ExecutionRecord,
    LedgerRow,
    RequestArrival,
    RunOutcome,
    SubmitAction,
    TokenSelection,
)
from flashrt_runtime.reason import Refusal

Said = tuple[str, str]
_NEAR = 1e-9  # of a probability: it is for reading, and machines differ in the last digits of exp


def roots(stored: StoredExecution) -> Iterator[Said]:
    """Arrivals and actions are those that the workload and the customers declare."""
    record = stored.record
    actions = record.customers.actions if record.customers else ()
    declared = {
        "arrival": [(one.arrival_us, one.request_id) for one in record.workload.requests],
        "action": [(one.time_us, one.request_id) for one in actions],
    }
    for kind, said in declared.items():
        seen = [(e.time_us, e.request_id) for e in record.events if e.kind == kind]
        if seen != sorted(said, key=lambda one: one[0]):
            yield "$.events", f"its events of kind {kind} are not those that were declared"


def works(stored: StoredExecution) -> Iterator[Said]:
    """Each computation began once and ended once, in its time, between the states it names."""
    from flashrt.lab.engine.topology import topology

    record = stored.record
    try:
        placed = topology(record.system, record.graph, record.placement)
    except Refusal:  # then the settings are wrong, which is another claim
        return
    done = [one.work_id for one in record.computations]
    begun, ended = _of(record, "compute_started"), _of(record, "compute_completed")
    if len(set(done)) < len(done) or [e.work_id for e in ended] != done:
        yield "$.computations", "they are not those that the events say were completed, in order"
        return
    first = {event.work_id: event for event in begun}
    if len(begun) != len(done) or first.keys() != set(done):
        yield "$.computations", "they are not those that the events say were started"
        return
    for number, (one, last) in enumerate(zip(record.computations, ended, strict=True)):
        path, start, size = f"$.computations[{number}]", first[one.work_id], len(one.input_ids)
        if _said(start) != (one.request_id, size, one.state_before):
            yield path, "it is not what its event started"
        if _said(last) != (one.request_id, size, one.state_after):
            yield path, "it is not what its event completed"
        if last.time_us - start.time_us != placed.service_us(one.nodes):
            yield path, "its time does not follow from its operations and bytes"


def _said(event: CacheEvent) -> tuple[str | None, int | None, str | None]:
    return event.request_id, event.positions, event.state


def _of(record: ExecutionRecord, *kinds: EventKind) -> list[CacheEvent]:
    return [event for event in record.events if event.kind in kinds]


def states(stored: StoredExecution) -> Iterator[Said]:
    """One name is one prefix, and each choice is the last position of its request's next work."""
    ids: dict[str, tuple[int, ...]] = {}
    names: dict[tuple[int, ...], str] = {}
    chosen: dict[str | None, int] = {}
    by_work = {one.work_id: one for one in stored.record.selections}
    for number, one in enumerate(stored.record.computations):
        path = f"$.computations[{number}]"
        after = ids.get(one.state_before or "", ()) + one.input_ids
        if ids.setdefault(one.state_after, after) != after:
            yield path, "the state that it made has the name of another prefix's"
        if names.setdefault(after, one.state_after) != one.state_after:
            yield path, "the state that it made has another name than before"
        if one.request_id in chosen and after[-1:] != (chosen[one.request_id],):
            yield path, "it does not go on with the token that was chosen"
        if one.work_id in by_work:
            chosen[one.request_id] = by_work[one.work_id].selected_id


def choices(stored: StoredExecution) -> Iterator[Said]:
    """Each choice has its event, its number and its work; its probabilities are of its scores."""
    from flashrt.lab.engine.decoding import softmax

    record = stored.record
    made = [(e.request_id, e.work_id) for e in _of(record, "selected")]
    if [(one.request_id, one.work_id) for one in record.selections] != made:
        yield "$.selections", "they are not those that the events say were made, in order"
    owner = {(one.work_id, one.request_id) for one in record.computations}
    count: Counter[str | None] = Counter()
    for number, one in enumerate(record.selections):
        path = f"$.selections[{number}]"
        mine = (one.work_id, one.request_id) in owner
        if one.step != count[one.request_id] or not mine:
            yield path, "it is not the next choice of the request that its computation was for"
        count[one.request_id] += 1
        if one.raw_logits and not _near(one, softmax(one.raw_logits)):
            yield path, "the probabilities are not those of the scores"


def _near(one: TokenSelection, true: tuple[float, ...]) -> bool:
    said = one.probabilities
    return len(said) == len(true) and all(
        isclose(a, b, rel_tol=_NEAR, abs_tol=_NEAR) for a, b in zip(said, true, strict=True)
    )


def ends(stored: StoredExecution) -> Iterator[Said]:
    """Each outcome has one end of its kind, what it published, and what is left of its budget."""
    from flashrt.lab.engine.register import ENDS

    record = stored.record
    actions = record.customers.actions if record.customers else ()
    asked: list[RequestArrival | SubmitAction] = [*record.workload.requests]
    asked += (one for one in actions if isinstance(one, SubmitAction))
    budget = {one.request_id: one.request.generation.max_output_tokens for one in asked}
    ended = Counter((e.request_id, e.kind) for e in _of(record, *set(ENDS.values())))
    if ended != Counter((one.request_id, ENDS[one.stop_reason]) for one in record.outcomes):
        yield "$.outcomes", "they are not how the events say that the requests ended"
    published = Counter(event.request_id for event in _of(record, "published"))
    for number, one in enumerate(record.outcomes):
        path = f"$.outcomes[{number}]"
        if one.published_tokens != published[one.request_id]:
            yield path, f"{published[one.request_id]} events say that something was published"
        if one.unused_budget != budget.get(one.request_id, -1) - one.selected_tokens:
            yield path, "what is left of the budget is not what was not selected"
        if one.complete is not (one.stop_reason in ("turn_end", "budget")) or _strange(one):
            yield path, "how it ended and whether it is complete or failed contradict each other"
    rejected = [event.request_id for event in _of(record, "rejected")]
    if [one.request_id for one in record.errors] != rejected:
        yield "$.errors", "they are not the actions that the events say were rejected"


def _strange(one: RunOutcome) -> bool:
    return (one.error is not None) is not (one.stop_reason in ("refused", "failed"))


def steps(stored: StoredExecution) -> Iterator[Said]:
    """Whoever was queued, admitted and looked up was so once, and gave back what was reserved."""
    record = stored.record
    asked = {e.request_id for e in _of(record, "queued")}
    for one in record.outcomes:
        if (one.request_id in asked) is (one.stop_reason == "refused"):
            yield "$.events", f"{one.request_id!r} was not queued, or was and was refused"
    admitted = [(e.request_id, e.bytes, e.place) for e in _of(record, "admitted")]
    released = [(e.request_id, e.bytes, e.place) for e in _of(record, "released")]
    if Counter(admitted) != Counter(released) or len(set(admitted)) < len(admitted):
        yield "$.events", "what was reserved at an admission is not what was released"
    found = Counter(e.request_id for e in _of(record, "cache_hit", "cache_miss"))
    cached = record.system.execution.implementation == "cached"
    if found != Counter(name for name, *_ in admitted if cached):
        yield "$.events", "the cache was not asked once for each admitted request"


def positions(stored: StoredExecution) -> Iterator[Said]:
    """The ledger counts what the events and the computations say."""
    from flashrt.lab.engine.seen import Seen

    record = stored.record
    device = record.placement.device_node if record.placement else "device"
    found = {row.request_id: [0] * 5 for row in record.ledger}
    ids: dict[str, tuple[int, ...]] = {}
    seen = Seen()
    for event in _of(record, "cache_hit", "transfer_completed"):
        row = found.get(event.request_id or "")
        if row is not None and event.kind == "transfer_completed":
            row[3] += event.positions or 0
            row[4] += event.bytes or 0
        if row is not None and (event.kind == "transfer_completed" or event.place == device):
            row[0] += event.positions or 0
    for one in record.computations:
        before = ids.get(one.state_before or "", ())
        ids[one.state_after] = before + one.input_ids
        _, new = seen.follow(seen.follow(0, before)[0], one.input_ids)
        row = found.get(one.request_id or "")
        if row is not None:
            row[1] += len(one.input_ids) - new
            row[2] += new
    for number, said in enumerate(record.ledger):
        if _counts(said) != found[said.request_id]:
            yield f"$.ledger[{number}]", "its counts are not those of the events and computations"


def _counts(row: LedgerRow) -> list[int]:
    return [
        row.reused_positions,
        row.recomputed_positions,
        row.computed_positions,
        row.transferred_positions,
        row.transferred_bytes,
    ]


ACCOUNTS = (roots, works, states, choices, ends, steps, positions)
