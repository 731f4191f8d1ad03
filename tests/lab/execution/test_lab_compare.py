"""Where two executions part, and whether they answered the same."""

from dataclasses import replace
from fractions import Fraction

import pytest

from flashrt.document.problem import InputError
from flashrt.lab.execution import compare, explain
from flashrt.lab.execution.difference import ABSENT, differences
from flashrt_runtime.reason import Reason


def test_an_execution_parts_in_nothing_from_itself(hit):
    found = compare(hit, hit)
    assert found.parting is None
    assert found.untimed is None
    assert found.outputs_identical
    assert not found.consumed
    assert not found.bindings
    assert found.scores == (16, 16)


def test_another_rate_parts_first_in_time_and_not_in_what_happened(ran):
    found = compare(
        ran("transfer_or_recompute", "link_100"), ran("transfer_or_recompute", "link_25")
    )
    assert [one.path for one in found.consumed] == ["$.system.transfer.link_bytes_per_us"]
    assert found.parting.first.kind == found.parting.second.kind == "transfer_completed"
    assert found.parting.first.time_us < found.parting.second.time_us
    assert found.untimed is None
    assert found.outputs_identical


def test_another_tier_parts_in_what_happened(ran):
    found = compare(ran("host_tier", "none"), ran("host_tier", "all_states"))
    assert found.parting == found.untimed or found.untimed is not None
    assert (found.untimed.first.kind, found.untimed.second.kind) == ("evicted", "demoted")


def test_an_execution_that_ended_before_parts_where_it_ended(hit, forged):
    short = forged(hit, events=hit.record.events[:-2])
    parting = compare(hit, short).parting
    assert parting.number == len(hit.record.events) - 2
    assert parting.second is None
    assert parting.first == hit.record.events[-2]
    assert parting.record()["second"] is None


def test_one_other_token_or_end_is_another_output(hit, forged):
    first = hit.record.outcomes[0]
    for change in ({"published_ids": (1,)}, {"stop_reason": "turn_end"}):
        other = forged(hit, outcomes=(replace(first, **change), *hit.record.outcomes[1:]))
        found = compare(hit, other)
        assert not found.outputs_identical
        assert [a.request_id for a in found.answers if not a.identical] == [first.request_id]
    missing = compare(hit, forged(hit, outcomes=hit.record.outcomes[1:]))
    assert not missing.outputs_identical


def test_one_other_score_is_counted(hit, forged):
    first = hit.record.selections[0]
    scores = (first.raw_logits[0] + 1, *first.raw_logits[1:])
    other = forged(hit, selections=(replace(first, raw_logits=scores), *hit.record.selections[1:]))
    assert compare(hit, other).scores == (15, 16)


def test_a_chain_names_what_it_waited_for(hit):
    chain = explain(hit, "a_2")
    admitted = next(s for s in chain.segments if s.last.kind == "admitted")
    assert [event.kind for event in admitted.also] == ["transfer_completed"]
    assert admitted.spent == "wait for admission"
    assert chain.spent()["transfer"] == 50 + Fraction(51200, 100)


def test_a_request_that_is_not_there_is_refused_with_those_that_are(hit):
    with pytest.raises(InputError, match="name one of a_1, a_2, b_1, b_2") as found:
        explain(hit, "c")
    assert found.value.reason is Reason.UNKNOWN_CELL


def test_a_chain_that_breaks_off_or_turns_back_is_refused_and_ends(hit, forged):
    events = list(hit.record.events)
    end = next(e for e in events if e.kind == "completed")
    for causes in ((end.event_id,), (end.event_id + 1,), (-1,), ()):
        changed = [replace(end, causes=causes) if e is end else e for e in events]
        with pytest.raises(InputError) as found:
            explain(forged(hit, events=tuple(changed)), end.request_id)
        assert found.value.reason is Reason.VERDICT


def test_differences_of_json():
    one, other = {"a": [1, {"b": 2}], "c": "x"}, {"a": [1, {"b": "2"}], "d": None}
    assert [(d.path, d.first, d.second) for d in differences(one, other)] == [
        ("$.a[1].b", "2", "2"), ("$.c", "x", ABSENT), ("$.d", ABSENT, "null"),
    ]  # fmt: skip
    assert [d.path for d in differences([1], [1, 2])] == ["$"]
    assert list(differences({"a": [1.5]}, {"a": [1.5]})) == []
