"""What must hold within any execution record, whoever wrote it: recomputed from its own parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from flashrt.document.problem import InputError, Problem
from flashrt.lab.execution.accounts import ACCOUNTS
from flashrt.lab.execution.binding import Binding, execution_id
from flashrt.lab.execution.explain import explain
from flashrt.lab.execution.file import StoredExecution
from flashrt.lab.execution.origin import origin
from flashrt.lab.execution.run import consumed_of
from flashrt.lab.execution.setup import Setup, requests_of
from flashrt.lab.records import TokenSelection
from flashrt_runtime.reason import Reason, Refusal

ROOTS = ("arrival", "action")
Said = tuple[str, str]


def wrong_with(stored: StoredExecution) -> list[Problem]:
    """Every claim of a record that does not follow from its evidence, in order."""
    found: list[Problem] = []
    for check in _CHECKS:
        for path, what in check(stored):
            do = "run the same setup again: a record is never repaired"
            found.append(Problem(stored.file, 1, path, what, do, Reason.VERDICT))
    return found


def _identity(stored: StoredExecution) -> Iterator[Said]:
    true = execution_id(consumed_of(stored.body), Binding.of(stored.record))
    if stored.record.execution.id != true:
        yield "$.execution.id", "the id is not of what was consumed and of the binding"
    try:
        if Setup.of(stored.record).system != stored.record.system:
            yield "$.system", "the settings are not those that the specification resolves to"
    except Refusal as error:
        yield "$.specification", f"{error.subject}: {error.what}"


def _events(stored: StoredExecution) -> Iterator[Said]:
    now = Fraction(0)
    for number, event in enumerate(stored.record.events):
        path = f"$.events[{number}]"
        if event.event_id != number:
            yield path, f"event {event.event_id} stands where {number} is expected"
        if event.time_us < now:
            yield path, f"it happens at {event.time_us} us, after {now} us"
        now = max(now, event.time_us)
        if any(not 0 <= cause < number for cause in event.causes):
            yield path, "a cause does not come before it"
        if not event.causes and event.kind not in ROOTS:
            yield path, f"{event.kind} has no cause: only arrivals and actions are roots"
    clock = stored.record.execution.virtual
    if clock is None or not clock.started_us <= now <= clock.ended_us:
        yield "$.execution.virtual", f"the clock does not span the events, which end at {now} us"


def _requests(stored: StoredExecution) -> Iterator[Said]:
    record = stored.record
    ended = [one.request_id for one in record.outcomes]
    for name in sorted({name for name in ended if ended.count(name) > 1}):
        yield "$.outcomes", f"{name!r} ended twice"
    for name in requests_of(record.workload, record.customers):
        if name not in stored.outcomes:
            yield "$.outcomes", f"nothing says what became of {name!r}"
    rows = [row.request_id for row in record.ledger]
    if sorted(rows) != sorted(set(ended)):
        yield "$.ledger", "it does not have one row for each request"
    for name in rows:
        try:
            explain(stored, name)
        except InputError as error:
            problem = error.problems[0]
            yield problem.path, f"{name}: {problem.what}"


def _selections(stored: StoredExecution) -> Iterator[Said]:
    chosen: dict[str | None, list[int]] = {}
    for number, one in enumerate(stored.record.selections):
        if not _greedy(one):
            yield f"$.selections[{number}]", "the token is not the first of the highest scores"
        chosen.setdefault(one.request_id, []).append(one.selected_id)
    for number, outcome in enumerate(stored.record.outcomes):
        path, ids = f"$.outcomes[{number}]", chosen.get(outcome.request_id, [])
        published = list(outcome.published_ids)
        if outcome.published_tokens != len(published):
            yield path, f"{outcome.published_tokens} tokens are counted, {len(published)} listed"
        if outcome.selected_tokens != len(ids):
            yield path, f"{outcome.selected_tokens} selections are counted, {len(ids)} recorded"
        if ids[: len(published)] != published:
            yield path, "what was published is not what was selected"


def _greedy(one: TokenSelection) -> bool:
    scores = one.raw_logits
    return bool(scores) and one.selected_id == scores.index(max(scores))


def _states(stored: StoredExecution) -> Iterator[Said]:
    made: set[str] = set()
    for number, one in enumerate(stored.record.computations):
        if one.state_before is not None and one.state_before not in made:
            yield f"$.computations[{number}]", "it continues from a state that nothing here made"
        made.add(one.state_after)


_CHECKS: tuple[Callable[[StoredExecution], Iterator[Said]], ...] = (
    _identity,
    _events,
    _requests,
    _selections,
    _states,
    origin,
    *ACCOUNTS,
)
