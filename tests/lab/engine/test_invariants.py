"""Random workloads and customers: invariants after every event, causes, chains, equal outputs."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.lab.engine import Broken, Engine, MemoExecutor, Tally, check_invariants
from flashrt.lab.records import (
    ComputeServiceConfig,
    CustomerInteraction,
    Placement,
    RequestArrival,
    ResourceGraph,
    ResourceLink,
    ResourceNode,
    StateTransferConfig,
    SystemCeilings,
    Workload,
)
from tests.lab.engine.toy import Toy, acts, arrivals, asks, causal_chain, run, system

TIMES = st.fractions(min_value=0, max_value=60, max_denominator=7)
NAMES = st.sampled_from("pqrstu")
RATES = st.fractions(min_value=Fraction(1, 9), max_value=40, max_denominator=9)
TEXTS = st.text(alphabet="ab", min_size=0, max_size=9)
SAID = st.dictionaries(
    st.text(alphabet="abcdefg", min_size=1, max_size=5),
    st.sampled_from(["end", "nan", "a", "b"]),
    max_size=6,
)


@st.composite
def scenarios(draw):
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    lines, actions = [], []
    for name in names:
        request = asks(draw(TEXTS), draw(st.integers(1, 6)))
        at = draw(TIMES)
        if draw(st.booleans()):
            lines.append(RequestArrival(name, at, request))
        else:
            actions.append(*acts((at, "submit", name, request.text, 1)).actions)
            actions[-1] = replace(actions[-1], request=request)
    for _ in range(draw(st.integers(0, 5))):
        if draw(st.booleans()):
            actions += acts((draw(TIMES), "cancel", draw(NAMES))).actions
        else:
            count = draw(st.integers(0, 7))
            actions += acts((draw(TIMES), "consume", draw(NAMES), count)).actions
    config = system(
        active=draw(st.integers(1, 3)),
        device=draw(st.integers(0, 300)),
        host=draw(st.sampled_from([0, 35, 90, 200])),
        retention=draw(st.sampled_from(["none", "exact_prefix_lru", "exact_final_lru"])),
        cached=draw(st.booleans()),
        ceilings=SystemCeilings(
            max_requests=draw(st.none() | st.integers(1, 4)),
            publication_buffer_tokens=draw(st.none() | st.integers(1, 3)),
        ),
    )
    toy = Toy(says=draw(SAID), context=draw(st.integers(3, 12)))
    config = replace(
        config,
        transfer=StateTransferConfig(draw(RATES), draw(TIMES)),
        compute_service=ComputeServiceConfig(draw(RATES), draw(RATES)),
    )
    placed = {}
    if draw(st.booleans()):
        node = ResourceNode("d", 300, draw(RATES), draw(RATES))
        there = ResourceNode("h", 300, draw(RATES), draw(RATES))
        links = (
            ResourceLink("in", "h", "d", draw(RATES), draw(TIMES)),
            ResourceLink("out", "d", "h", draw(RATES), draw(TIMES)),
        )
        placed["graph"] = ResourceGraph((node, there), links)
        placed["placement"] = Placement("d", "h", ("in",), ("out",))
    customers = CustomerInteraction(tuple(draw(st.permutations(actions))))
    return config, toy, Workload(tuple(lines)), customers, placed


@settings(max_examples=150, deadline=None)
@given(scenarios())
def test_invariants_hold_after_every_event_and_every_event_has_earlier_causes(scenario):
    config, toy, workload, customers, placed = scenario
    execution = run(config, toy, workload, customers, **placed)
    for number, event in enumerate(execution.events):
        assert event.event_id == number
        assert all(cause < number for cause in event.causes)
        assert all(execution.events[c].time_us <= event.time_us for c in event.causes)
        assert (event.kind in ("arrival", "action")) == (not event.causes)
    assert [e.time_us for e in execution.events] == sorted(e.time_us for e in execution.events)
    for row in execution.ledger:
        chain = causal_chain(execution, row.request_id)
        assert sum((end.time_us - start.time_us for start, end in chain), Fraction(0)) == (
            row.latency_us
        )
        assert {end.request_id for _, end in chain} == {row.request_id}
        assert chain[0][0].kind in ("arrival", "action")


@settings(max_examples=80, deadline=None)
@given(scenarios())
def test_reuse_changes_times_and_never_outputs(scenario):
    config, toy, workload, _, placed = scenario
    config = replace(config, ceilings=SystemCeilings())
    kept = run(config, toy, workload, **placed)
    bare = replace(config, kv_cache=replace(config.kv_cache, retention_policy="none"))
    anew = run(bare, Toy(says=toy.says, context=toy.context), workload, **placed)
    assert [replace(o, error=o.error and replace(o.error, message="")) for o in kept.outcomes] == [
        replace(o, error=o.error and replace(o.error, message="")) for o in anew.outcomes
    ]


@settings(max_examples=60, deadline=None)
@given(scenarios())
def test_same_input_gives_the_same_evidence_and_memory_changes_none_of_it(scenario):
    config, toy, workload, customers, placed = scenario
    first = run(config, toy, workload, customers, **placed)
    assert run(config, toy, workload, customers, **placed) == first
    memo = MemoExecutor(toy, steps=3, states=1)
    assert run(config, memo, workload, customers, **placed) == first


def test_tally_counts_what_everything_keeps():
    lines = arrivals(("a", 0, "abc", 3), ("b", 4, "abc", 3))
    everything = run(system(), Toy(), lines)
    tally = Tally()
    counted = run(system(), Toy(), lines, keeper=tally)
    assert tally.events == len(everything.events)
    assert tally.kinds["arrival"] == 2
    assert (tally.computations, tally.selections) == (
        len(everything.computations),
        len(everything.selections),
    )
    assert counted.events == ()
    assert counted.outcomes == everything.outcomes
    assert counted.ledger == everything.ledger


def spoil_used(engine):
    engine.topology.device.used += 1


def spoil_reservation(engine):
    engine.admission.active[0].reserved -= 1


def spoil_count(engine):
    engine.register.submitted += 1


def spoil_pin(engine):
    next(iter(engine.topology.device)).pins += 1


def spoil_busy(engine):
    engine.service.busy = not engine.service.busy


def spoil_positions(engine):
    engine.admission.active[0].computed += 1


@pytest.mark.parametrize(
    "spoil",
    [spoil_used, spoil_reservation, spoil_count, spoil_pin, spoil_busy, spoil_positions],
)
def test_a_broken_engine_is_noticed(spoil):
    def watch(engine, event):
        if event.kind == "selected" and event.request_id == "b":
            check_invariants(engine)
            spoil(engine)
            with pytest.raises(Broken):
                check_invariants(engine)
            raise KeyboardInterrupt

    engine = Engine(system(), Toy(), arrivals(("a", 0, "abc", 1), ("b", 50, "abc", 2)), watch=watch)
    with pytest.raises(KeyboardInterrupt):
        engine.run()


def test_unknown_request_has_no_outcome_and_no_row():
    execution = run(system(), Toy(), arrivals(("a", 0, "abc", 1)))
    with pytest.raises(KeyError):
        execution.outcome("b")
    with pytest.raises(KeyError):
        execution.row("b")


def test_first_causes_say_what_was_done_and_the_others_what_was_waited_for():
    execution = run(system(active=1), Toy(), arrivals(("a", 0, "a", 3), ("b", 1, "b", 1)))
    chain = causal_chain(execution, "b")
    assert [(end.kind, end.time_us - start.time_us) for start, end in chain] == [
        ("queued", 0),
        ("admitted", 8),
        ("cache_miss", 0),
        ("compute_started", 0),
        ("compute_completed", 3),
        ("selected", 0),
        ("published", 0),
        ("completed", 0),
    ]
    others = [execution.events[cause] for cause in chain[1][1].causes[1:]]
    assert [(e.kind, e.request_id) for e in others] == [("released", "a")]
