"""Every claim of a record is recomputed: a forger who seals again is found out, and where."""

from dataclasses import replace
from fractions import Fraction

import pytest

from flashrt.lab.execution import wrong_with
from flashrt_runtime.reason import Reason


def at(items, index, **changes):
    found = list(items)
    found[index] = replace(found[index], **changes)
    return tuple(found)


def kind(record, name):
    return next(e.event_id for e in record.events if e.kind == name)


FORGERIES = {
    "an id": (
        lambda r: {"execution": replace(r.execution, id="sha256:" + "0" * 64)},
        r"$.execution.id",
    ),
    "other settings": (
        lambda r: {"system": replace(r.system, scheduling=replace(
            r.system.scheduling, max_active_requests=9))},
        "$.system",
    ),
    "a lost event": (lambda r: {"events": r.events[:5] + r.events[6:]}, "$.events[5]"),
    "an effect before its cause": (
        lambda r: {"events": at(r.events, 3, causes=(7,))}, "$.events[3]",
    ),
    "a root that is none": (
        lambda r: {"events": at(r.events, kind(r, "selected"), causes=())},
        "$.events[",
    ),
    "time that goes back": (
        lambda r: {"events": at(r.events, -1, time_us=Fraction(0))}, "$.events[",
    ),
    "a clock that ends too soon": (
        lambda r: {"execution": replace(r.execution, virtual=replace(
            r.execution.virtual, ended_us=Fraction(1)))},
        "$.execution.virtual",
    ),
    "a lost outcome": (lambda r: {"outcomes": r.outcomes[1:]}, "$.outcomes"),
    "an outcome twice": (lambda r: {"outcomes": (*r.outcomes, r.outcomes[0])}, "$.outcomes"),
    "a lost row": (lambda r: {"ledger": r.ledger[1:]}, "$.ledger"),
    "a better latency": (
        lambda r: {"ledger": at(r.ledger, 0, latency_us=Fraction(1))}, "$.events[",
    ),
    "another choice": (
        lambda r: {"selections": at(r.selections, 0, selected_id=0)}, "$.selections[0]",
    ),
    "another text": (
        lambda r: {"outcomes": at(r.outcomes, 0, published_ids=(0, 0, 0, 0))}, "$.outcomes[0]",
    ),
    "a wrong count": (
        lambda r: {"outcomes": at(r.outcomes, 0, published_tokens=9)}, "$.outcomes[0]",
    ),
    "a lost choice": (lambda r: {"selections": r.selections[1:]}, "$.outcomes[0]"),
    "a state from nowhere": (
        lambda r: {"computations": at(r.computations, 1, state_before="sha256:" + "0" * 64)},
        "$.computations[1]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found_where_it_is(hit, forged, name):
    forge, path = FORGERIES[name]
    problems = wrong_with(forged(hit, **forge(hit.record)))
    assert problems
    assert any(problem.path.startswith(path) for problem in problems), problems
    assert {problem.reason for problem in problems} == {Reason.VERDICT}


def test_a_specification_that_contradicts_itself_is_found(hit, forged):
    spec = hit.record.specification
    twice = replace(spec, controls=(*spec.controls, spec.controls[0]))
    problems = wrong_with(forged(hit, specification=twice))
    assert any("it is assigned twice" in problem.what for problem in problems)


def test_an_honest_record_has_no_problem(hit):
    assert wrong_with(hit) == []
