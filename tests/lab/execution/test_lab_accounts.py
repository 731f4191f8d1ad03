"""The accounts of a record agree: what one of them says and another does not is found."""

from dataclasses import replace
from fractions import Fraction

import pytest

from flashrt.lab.execution import list_designs, reexecute, wrong_with
from flashrt.lab.records import ApiError


def at(items, index, **changes):
    found = list(items)
    found[index] = replace(found[index], **changes)
    return tuple(found)


def without(record, kind):
    """A record whose first event of a kind is lost, with numbers and causes closed up behind it."""
    gone = next(e for e in record.events if e.kind == kind)
    cause = gone.causes[0] if gone.causes else None
    kept = []
    for event in record.events[: gone.event_id] + record.events[gone.event_id + 1 :]:
        causes = [cause if c == gone.event_id else c - (c > gone.event_id) for c in event.causes]
        number = event.event_id - (event.event_id > gone.event_id)
        kept.append(replace(event, event_id=number, causes=tuple(causes)))
    return tuple(kept)


def first(record, kind):
    return next(e.event_id for e in record.events if e.kind == kind)


def tell(kind, **changes):
    return lambda r: {"events": at(r.events, first(r, kind), **changes)}


def work(**changes):
    return lambda r: {"computations": at(r.computations, 1, **changes)}


def choice(**changes):
    return lambda r: {"selections": at(r.selections, 1, **changes)}


def row(index, **changes):
    return lambda r: {"ledger": at(r.ledger, index, **changes)}


def header(**changes):
    return lambda r: {"execution": replace(r.execution, **changes)}


FORGERIES = {
    "another arrival": (tell("arrival", request_id="b_1"), "$.events"),
    "work for another": (work(request_id="b_1"), "$.computations[1]"),
    "other input": (work(input_ids=(5,)), "$.computations"),
    "no operations": (work(nodes=()), "$.computations[1]"),
    "another state": (work(state_after="sha256:" + "0" * 64), "$.computations[1]"),
    "lost work": (lambda r: {"computations": r.computations[:-1]}, "$.computations"),
    "work twice": (lambda r: {"computations": (*r.computations, r.computations[0])}, "$.comp"),
    "a state that an event has otherwise": (tell("compute_completed", state="x"), "$.computations"),
    "positions that an event has otherwise": (tell("compute_started", positions=1), "$.comp"),
    "other probabilities": (choice(probabilities=(1.0,)), "$.selections[1]"),
    "another step": (choice(step=7), "$.selections[1]"),
    "the work of another": (choice(work_id="b_1/0"), "$.selections"),
    "an outcome of another kind": (
        lambda r: {"outcomes": at(r.outcomes, 0, stop_reason="cancelled", complete=False)},
        "$.outcomes",
    ),
    "complete and not": (lambda r: {"outcomes": at(r.outcomes, 0, complete=False)}, "$.outcomes"),
    "more budget": (lambda r: {"outcomes": at(r.outcomes, 0, unused_budget=3)}, "$.outcomes[0]"),
    "an error from nowhere": (lambda r: {"errors": (ApiError("a", "b", "c", "a_1"),)}, "$.errors"),
    "fewer bytes reserved": (tell("admitted", bytes=1), "$.events"),
    "more reuse": (row(0, reused_positions=9), "$.ledger[0]"),
    "new and not again": (row(1, computed_positions=26, recomputed_positions=0), "$.ledger[1]"),
    "fewer bytes moved": (row(2, transferred_bytes=1), "$.ledger[2]"),
    "another command": (header(command=("rm", "-rf")), "$.execution.command"),
    "a measuring process": (header(processes=True), "$.execution.processes"),
    "an arm that is none": (lambda r: {"design": replace(r.design, arm="none")}, "$.design"),
    "another arm": (lambda r: {"design": replace(r.design, arm="link_10")}, "$.design"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_accounts_that_disagree_are_found(hit, forged, name):
    forge, path = FORGERIES[name]
    problems = wrong_with(forged(hit, **forge(hit.record)))
    assert any(problem.path.startswith(path) for problem in problems), problems


@pytest.mark.parametrize(
    "kind",
    ["queued", "admitted", "cache_hit", "cache_miss", "compute_started", "compute_completed",
     "selected", "published", "released", "completed"],
)  # fmt: skip
def test_an_event_that_was_lost_and_closed_up_is_found(hit, forged, kind):
    assert wrong_with(forged(hit, events=without(hit.record, kind)))


def test_a_computation_takes_the_time_of_its_operations(hit, forged):
    record = hit.record
    slower = replace(record.system.compute_service, memory_bytes_per_us=Fraction(1))
    system = replace(record.system, compute_service=slower)
    problems = wrong_with(forged(hit, system=system))
    assert any("its time does not follow" in problem.what for problem in problems)


def test_a_placement_in_no_graph_is_found_and_stops_nothing(hit, forged, ran):
    placement = ran("two_hops", "host").record.placement
    problems = wrong_with(forged(hit, placement=placement))
    assert any("go together" in problem.what for problem in problems)
    assert all(problem.path.startswith(("$.specification", "$.execution")) for problem in problems)


ARMS = [(found.design.name, arm) for found in list_designs() for arm in found.arms]


@pytest.mark.parametrize(("design", "arm"), ARMS)
def test_the_accounts_of_every_design_agree(ran, design, arm):
    assert wrong_with(ran(design, arm)) == []


def test_a_design_that_is_another_by_now_says_nothing(hit, forged, model):
    digest = "sha256:" + "0" * 64
    for changes in ({"digest": digest}, {"digest": digest, "arm": "gone"}, {"name": "nobodys"}):
        stored = forged(hit, design=replace(hit.record.design, **changes))
        design = stored.record.design
        command = ("flashrt", "lab", "run", design.name, "--arm", design.arm)
        execution = replace(stored.record.execution, command=command)
        stored = forged(stored, execution=execution)
        assert wrong_with(stored) == []
        assert reexecute(stored, model).same_evidence
