"""Requests and responses: budgets, termination, refusals, and their errors."""

from dataclasses import fields
from fractions import Fraction

import pytest

from flashrt.lab import records
from flashrt.lab.engine import Engine
from flashrt.lab.records import SystemCeilings
from flashrt_runtime.reason import Reason, Refusal
from tests.lab.engine.toy import Toy, arrivals, run, story, system, times


def test_budget_counts_selections_and_the_last_is_never_run():
    toy = Toy()
    execution = run(system(), toy, arrivals(("r", 0, "abc", 2)))
    outcome = execution.outcome("r")
    assert (outcome.stop_reason, outcome.complete) == ("budget", True)
    assert (outcome.published_tokens, outcome.selected_tokens, outcome.unused_budget) == (2, 2, 0)
    assert outcome.display == "de"
    assert outcome.published_ids == (4, 5)
    assert toy.runs == [("", "ab"), ("ab", "c"), ("abc", "d")]
    assert execution.ended_us == 4 * 3


def test_turn_end_is_selected_and_not_published():
    execution = run(system(), Toy(says={"abcd": "end"}), arrivals(("r", 0, "abc", 5)))
    outcome = execution.outcome("r")
    assert (outcome.stop_reason, outcome.complete) == ("turn_end", True)
    assert (outcome.published_tokens, outcome.selected_tokens, outcome.unused_budget) == (1, 2, 3)
    assert [s.selected_id for s in execution.selections] == [4, 0]
    assert story(execution, "r").count("published") == 1


def test_turn_end_as_the_first_token_is_a_whole_empty_response():
    execution = run(system(), Toy(says={"a": "end"}), arrivals(("r", 0, "a", 5)))
    outcome = execution.outcome("r")
    assert (outcome.stop_reason, outcome.complete, outcome.error) == ("turn_end", True, None)
    assert (outcome.published_ids, outcome.display, outcome.selected_tokens) == ((), "", 1)


def test_turn_end_with_the_last_selection_of_the_budget_is_turn_end():
    execution = run(system(), Toy(says={"a": "end"}), arrivals(("r", 0, "a", 1)))
    assert execution.outcome("r").stop_reason == "turn_end"


def test_context_limit_publishes_what_was_selected_and_is_not_whole():
    execution = run(system(), Toy(context=4), arrivals(("r", 0, "abc", 9)))
    outcome = execution.outcome("r")
    assert (outcome.stop_reason, outcome.complete, outcome.error) == ("context_limit", False, None)
    assert (outcome.published_tokens, outcome.unused_budget) == (2, 7)
    assert story(execution, "r")[-3:] == ["completed", "released", "retained"]


def test_prompt_of_exactly_the_context_selects_once():
    execution = run(system(), Toy(context=3), arrivals(("r", 0, "abc", 9)))
    assert execution.outcome("r").published_tokens == 1
    assert execution.outcome("r").stop_reason == "context_limit"


@pytest.mark.parametrize(
    ("config", "toy", "line", "subject", "message"),
    [
        (system(), Toy(context=2), ("r", 0, "abc", 1), "InferenceRequest.text", "3 tokens"),
        (system(), Toy(), ("r", 0, "", 1), "InferenceRequest.text", "none"),
        (system(device=39), Toy(), ("r", 0, "abc", 2), "KVCacheConfig.device_kv_bytes", "40 bytes"),
        (
            system(ceilings=SystemCeilings(max_output_tokens=3)),
            Toy(),
            ("r", 0, "abc", 4),
            "GenerationPolicy.max_output_tokens",
            "4 is above 3",
        ),
    ],
)
def test_request_that_can_never_be_served_is_refused(config, toy, line, subject, message):
    execution = run(config, toy, arrivals(line, ("other", 5, "a", 1)))
    outcome = execution.outcome("r")
    assert (outcome.stop_reason, outcome.complete) == ("refused", False)
    assert outcome.error.subject == subject
    owner, field = subject.split(".")
    assert field in {each.name for each in fields(getattr(records, owner))}
    assert outcome.error.request_id == "r"
    assert message in outcome.error.message
    assert outcome.error.rule
    assert story(execution, "r") == ["arrival", "refused"]
    assert execution.row("r").latency_us == 0
    assert execution.outcome("other").stop_reason == "budget"


def test_reservation_of_exactly_the_budget_fits():
    execution = run(system(device=40), Toy(), arrivals(("r", 0, "abc", 2)))
    assert execution.outcome("r").stop_reason == "budget"


def test_ceiling_on_requests_counts_accepted_ones():
    config = system(ceilings=SystemCeilings(max_requests=1))
    execution = run(config, Toy(), arrivals(("x", 0, "", 1), ("a", 0, "a", 1), ("b", 0, "a", 1)))
    assert [o.stop_reason for o in execution.outcomes] == ["refused", "budget", "refused"]
    assert execution.outcome("b").error.subject == "SystemCeilings.max_requests"


def test_scores_that_are_not_finite_fail_the_request_and_no_other():
    toy = Toy(says={"abcd": "nan"})
    execution = run(system(), toy, arrivals(("r", 0, "abc", 3), ("s", 0, "xy", 1)))
    outcome = execution.outcome("r")
    assert (outcome.stop_reason, outcome.complete) == ("failed", False)
    assert outcome.error.subject == "TokenSelection.raw_logits"
    assert "r/2" in outcome.error.message
    assert outcome.published_tokens == 1
    assert "retained" not in story(execution, "r")
    assert execution.outcome("s").complete


def test_infinite_scores_are_not_finite_either():
    class Infinite(Toy):
        def run(self, input_ids, state):
            step = super().run(input_ids, state)
            return type(step)((float("inf"), *step.logits[1:]), step.state, step.nodes)

    execution = run(system(), Infinite(), arrivals(("r", 0, "a", 1)))
    assert execution.outcome("r").stop_reason == "failed"


def test_first_of_equal_scores_is_selected_with_softmax_beside_it():
    class Even(Toy):
        def run(self, input_ids, state):
            step = super().run(input_ids, state)
            return type(step)((0.0, 7.0, 7.0, -1.0), step.state, step.nodes)

    (selection,) = run(system(), Even(), arrivals(("r", 0, "a", 1))).selections
    assert selection.selected_id == 1
    assert selection.raw_logits == (0.0, 7.0, 7.0, -1.0)
    assert abs(sum(selection.probabilities) - 1) < 1e-12
    assert selection.probabilities[1] == selection.probabilities[2] > 0.49


def test_two_requests_of_one_name_are_no_workload():
    with pytest.raises(Refusal) as refused:
        run(system(), Toy(), arrivals(("r", 0, "a", 1), ("r", 3, "a", 1)))
    assert refused.value.reason is Reason.CONFLICT
    assert "r" in str(refused.value)


def test_outcomes_and_ledger_are_in_order_of_submission():
    lines = (("late", 9, "a", 1), ("long", 0, "abc", 4), ("short", 0, "b", 1))
    execution = run(system(), Toy(), arrivals(*lines))
    assert [o.request_id for o in execution.outcomes] == ["long", "short", "late"]
    assert [row.request_id for row in execution.ledger] == ["long", "short", "late"]


def test_service_is_the_longer_of_operations_and_traffic():
    slow = system()
    execution = run(slow, Toy(), arrivals(("r", Fraction(1, 3), "a", 1)))
    assert times(execution, "compute_completed") == [Fraction(1, 3) + 3]
    assert execution.started_us == Fraction(1, 3)


def test_an_engine_runs_once():
    engine = Engine(system(), Toy(), arrivals(("r", 0, "a", 1)))
    assert engine.run().outcome("r").complete
    with pytest.raises(Refusal, match="it ran before"):
        engine.run()
