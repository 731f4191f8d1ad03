"""What customers do: submit, consume, cancel, at every stage of a request."""

import pytest

from flashrt.lab.records import SystemCeilings
from tests.lab.engine.toy import Toy, acts, arrivals, run, story, system, times


def test_each_submission_is_one_request():
    execution = run(system(), Toy(), None, acts((0, "submit", "r", "abc", 2)))
    assert story(execution, "r")[:3] == ["action", "queued", "admitted"]
    assert execution.outcome("r").complete


def test_cancellation_before_submission_is_refused_and_the_request_is_served():
    customers = acts((0, "cancel", "r"), (1, "submit", "r", "abc", 2))
    execution = run(system(), Toy(), None, customers)
    (error,) = execution.errors
    assert (error.subject, error.request_id) == ("CustomerInteraction.actions", "r")
    assert "submitted" in error.rule
    assert story(execution, "r")[:3] == ["action", "rejected", "action"]
    assert execution.outcome("r").complete


def test_at_one_instant_array_order_decides():
    before = run(system(), Toy(), None, acts((1, "cancel", "r"), (1, "submit", "r", "a", 1)))
    after = run(system(), Toy(), None, acts((1, "submit", "r", "a", 1), (1, "cancel", "r")))
    assert before.outcome("r").complete
    assert len(before.errors) == 1
    assert after.outcome("r").stop_reason == "cancelled"
    assert not after.errors
    assert story(after, "r") == ["action", "queued", "action", "cancelled"]


def test_cancellation_while_queued_lets_the_next_one_in():
    lines = arrivals(("a", 0, "aa", 3), ("b", 0, "bb", 1), ("c", 0, "cc", 1))
    execution = run(system(active=1), Toy(), lines, acts((1, "cancel", "b")))
    outcome = execution.outcome("b")
    assert (outcome.stop_reason, outcome.complete, outcome.error) == ("cancelled", False, None)
    assert story(execution, "b") == ["arrival", "queued", "action", "cancelled"]
    assert execution.row("b").latency_us == 1
    assert execution.outcome("c").complete


def test_cancellation_in_service_ends_with_the_computation():
    execution = run(system(), Toy(), arrivals(("r", 0, "abc", 3)), acts((8, "cancel", "r")))
    outcome = execution.outcome("r")
    # At 8 the second computation runs, from 6 to 9: its selection is never made.
    assert times(execution, "cancelled") == [9]
    assert (outcome.selected_tokens, outcome.unused_budget) == (0, 3)
    assert len(execution.computations) == 2
    assert story(execution, "r")[-3:] == ["compute_completed", "cancelled", "released"]


def test_cancellation_after_publication_keeps_what_was_published():
    execution = run(system(), Toy(), arrivals(("r", 0, "a", 9)), acts((7, "cancel", "r")))
    assert execution.outcome("r").published_tokens == 2
    assert execution.row("r").latency_us == 9


LINES = (("a", 0, "aaaa", 1), ("b", 100, "bbbb", 1), ("a2", 200, "aaaa", 1))


def test_cancellation_in_transfer_holds_bytes_until_it_ends():
    # The state of b leaves from 200 to 208; a2's own comes from 208 to 216.
    config = system(device=60, host=60)
    execution = run(config, Toy(), arrivals(*LINES), acts((210, "cancel", "a2")))
    assert times(execution, "cancelled") == [216]
    released = [e for e in execution.events if e.kind == "released" and e.request_id == "a2"]
    assert [(e.time_us, e.bytes) for e in released] == [(216, 40)]
    assert "compute_started" not in story(execution, "a2")


def test_cancellation_before_the_transfer_starts_ends_at_once():
    # x drives both states out; then a2 and b2 both want theirs back over the one link.
    lines = (
        *LINES[:2],
        ("x", 200, "xxxxxxxxxx", 11),
        ("a2", 500, "aaaa", 1),
        ("b2", 500, "bbbb", 1),
    )
    customers = acts((503, "cancel", "b2"))
    execution = run(system(device=200, host=60), Toy(), arrivals(*lines), customers)
    moved = [e for e in execution.events if e.time_us >= 500 and "transfer" in e.kind]
    assert [(e.request_id, e.time_us) for e in moved] == [("a2", 500), ("a2", 508)]
    assert times(execution, "cancelled") == [503]
    assert story(execution, "b2")[-4:] == ["cache_hit", "action", "cancelled", "released"]
    assert execution.row("b2").reused_positions == 0


def test_cancellation_after_completion_changes_nothing():
    execution = run(system(), Toy(), arrivals(("r", 0, "a", 1)), acts((50, "cancel", "r")))
    assert execution.outcome("r").complete
    assert not execution.errors
    assert story(execution, "r")[-2:] == ["action", "ignored"]


def test_second_cancellation_is_ignored():
    customers = acts((1, "cancel", "r"), (2, "cancel", "r"))
    execution = run(system(), Toy(), arrivals(("r", 0, "a", 9)), customers)
    assert story(execution, "r").count("ignored") == 1
    assert execution.outcome("r").stop_reason == "cancelled"


BUFFER = SystemCeilings(publication_buffer_tokens=2)


def test_full_publication_buffer_blocks_until_the_customer_consumes():
    customers = acts((30, "consume", "r", 1), (50, "consume", "r", 4))
    execution = run(system(ceilings=BUFFER), Toy(), arrivals(("r", 0, "a", 5)), customers)
    assert times(execution, "published") == [3, 6, 33, 53, 56]
    assert times(execution, "publication_blocked") == [6, 33]
    assert execution.outcome("r").stop_reason == "budget"


def test_blocked_request_is_passed_over_and_keeps_its_reservation():
    lines = arrivals(("r", 0, "a", 4), ("s", 1, "b", 2))
    customers = acts((60, "consume", "r", 9))
    execution = run(system(ceilings=BUFFER), Toy(), lines, customers)
    ends = {e.request_id: e.time_us for e in execution.events if e.kind == "completed"}
    assert ends["s"] < 60 < ends["r"]
    assert execution.outcome("r").published_tokens == 4


def test_demand_ahead_of_publication_never_blocks():
    customers = acts((0, "submit", "r", "a", 5), (0, "consume", "r", 5))
    execution = run(system(ceilings=BUFFER), Toy(), None, customers)
    assert not times(execution, "publication_blocked")


def test_buffer_that_nobody_will_empty_fails_the_request_and_frees_the_rest():
    lines = arrivals(("r", 0, "a", 4), ("s", 0, "b", 2))
    execution = run(system(active=1, ceilings=BUFFER), Toy(), lines)
    outcome = execution.outcome("r")
    assert (outcome.stop_reason, outcome.published_tokens) == ("failed", 2)
    assert outcome.error.subject == "SystemCeilings.publication_buffer_tokens"
    assert "no action follows" in outcome.error.message
    assert execution.outcome("s").complete


def test_blocked_request_can_be_cancelled():
    execution = run(
        system(ceilings=BUFFER), Toy(), arrivals(("r", 0, "a", 4)), acts((20, "cancel", "r"))
    )
    assert times(execution, "cancelled") == [20]


@pytest.mark.parametrize(
    ("customers", "rule"),
    [
        (acts((0, "consume", "r", 1), (5, "submit", "r", "a", 1)), "what was submitted"),
        (
            acts((0, "submit", "r", "a", 4), (1, "consume", "r", 3), (2, "consume", "r", 2)),
            "never goes back",
        ),
        (
            acts((0, "submit", "r", "a", 1), (1, "consume", "r", 3), (20, "consume", "r", 2)),
            "never goes back",
        ),
    ],
)
def test_impossible_consumption_is_an_error_that_names_its_rule(customers, rule):
    execution = run(system(), Toy(), None, customers)
    (error,) = execution.errors
    assert rule in error.rule
    assert error.subject == "CustomerInteraction.actions"
    assert execution.outcome("r").complete


def test_consumption_after_the_end_is_recorded():
    customers = acts((0, "submit", "r", "a", 1), (20, "consume", "r", 1))
    execution = run(system(), Toy(), None, customers)
    assert story(execution, "r")[-2:] == ["action", "consumed"]
    assert not execution.errors


def test_arrivals_come_before_actions_of_the_same_instant():
    execution = run(system(), Toy(), arrivals(("r", 5, "a", 1)), acts((5, "cancel", "r")))
    assert execution.outcome("r").stop_reason == "cancelled"
    assert not execution.errors
