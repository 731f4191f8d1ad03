"""Controls see through a replay that does no work."""

from __future__ import annotations

import pytest
import torch

from flashrt.qualify.controls import empty_control, poison, tensor_digest, two_steps
from flashrt.qualify.feed import logits_of
from flashrt_runtime.capture import capture

ROWS, VOCABULARY = 4, 11
TOKENS = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2])


def table():
    torch.manual_seed(0)
    return torch.randn(VOCABULARY, VOCABULARY)


def honest(weights=None):
    weights = table() if weights is None else weights

    def step(token_ids, positions):
        return weights[token_ids] + positions[None, :, None]

    return step


def stage_of(step, rows=ROWS):
    windows = {
        "token_ids": torch.zeros((1, rows), dtype=torch.int64),
        "positions": torch.arange(rows),
    }
    return capture(step, windows, form=("eager",))


def test_an_honest_step_writes_its_outputs_and_reads_its_inputs():
    found = poison(stage_of(honest()), TOKENS, ROWS, 32)
    assert found == {"outputs_rewritten": True, "inputs_honoured": True}


def test_a_replay_that_does_nothing_shows_the_poison():
    kept = honest()(TOKENS[None, :ROWS], torch.arange(ROWS))
    found = poison(stage_of(lambda token_ids, positions: kept), TOKENS, ROWS, 32)
    assert found == {"outputs_rewritten": False, "inputs_honoured": False}


def test_a_step_that_remembers_its_first_answer_ignores_new_inputs():
    answers = []

    def memoise(token_ids, positions):
        if not answers:
            answers.append(honest()(token_ids, positions))
        return answers[0].clone()

    found = poison(stage_of(memoise), TOKENS, ROWS, 32)
    assert found["inputs_honoured"] is False


def test_a_step_that_ignores_its_inputs_is_seen():
    def ignore(token_ids, positions):
        return honest()(torch.zeros_like(token_ids), positions)

    found = poison(stage_of(ignore), TOKENS, ROWS, 32)
    assert found == {"outputs_rewritten": True, "inputs_honoured": False}


def test_a_step_that_returns_nan_neither_rewrites_nor_honours():
    def nan(token_ids, positions):
        return honest()(token_ids, positions) * float("nan")

    found = poison(stage_of(nan), TOKENS, ROWS, 32)
    assert found == {"outputs_rewritten": False, "inputs_honoured": False}


@pytest.mark.parametrize(
    "frames",
    [
        [TOKENS],
        [torch.tensor([1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2])],
        [torch.tensor([3, 3, 3, 3, 3]), torch.tensor([4, 4, 4, 4, 4])],
        [torch.tensor([3, 3, 3, 3, 3])],
        [torch.tensor([0, 0, 0, 0])],
    ],
    ids=["plain", "repeats", "another frame", "one step", "zeros"],
)
def test_text_that_repeats_itself_does_not_accuse_an_honest_step(frames):
    steps = two_steps(frames, ROWS)
    assert steps.numel() == 2 * ROWS
    assert torch.equal(steps[:ROWS], frames[0][:ROWS])
    assert not torch.equal(steps[:ROWS], steps[ROWS:])
    assert poison(stage_of(honest()), steps, ROWS, 32)["inputs_honoured"] is True


def test_one_row_steps_differ_too():
    assert two_steps([torch.tensor([5, 5, 7])], 1).tolist() == [5, 7]


def test_a_host_that_does_not_repeat_itself_is_caught():
    calls = iter(range(100))

    def drifting(token_ids, positions):
        return honest()(token_ids, positions) + next(calls)

    first, second = empty_control(stage_of(honest()), TOKENS, ROWS)
    assert first == second
    first, second = empty_control(stage_of(drifting), TOKENS, ROWS)
    assert first != second


def test_a_digest_sees_bytes_shape_and_dtype():
    one = torch.arange(6, dtype=torch.float32)
    assert tensor_digest(one) == tensor_digest(one.clone())
    different = [one + 1, one.reshape(2, 3), one.double(), one.to(torch.int32)]
    assert len({tensor_digest(t) for t in [one, *different]}) == 5
    assert tensor_digest(one[::2]) == tensor_digest(one[::2].contiguous())
    assert tensor_digest(torch.tensor(0.0)) != tensor_digest(torch.tensor(-0.0))


@pytest.mark.parametrize("kept", ["first token", "tokens", "positions"])
def test_a_step_that_keeps_its_answer_by_a_part_of_its_inputs_is_seen(kept):
    answers = {}

    def memoise(token_ids, positions):
        parts = {"first token": token_ids[0, :1], "tokens": token_ids, "positions": positions}
        return answers.setdefault(str(parts[kept]), honest()(token_ids, positions)).clone()

    found = poison(stage_of(memoise), TOKENS, ROWS, 32)
    assert found == {"outputs_rewritten": True, "inputs_honoured": False}


def test_positions_are_left_alone_where_the_cache_has_no_room():
    found = poison(stage_of(honest()), TOKENS, ROWS, ROWS)
    assert found == {"outputs_rewritten": True, "inputs_honoured": True}


def test_a_frame_is_fed_in_whole_steps_from_its_start():
    weights = table()
    logits = logits_of(stage_of(honest(weights)), TOKENS, ROWS)
    assert torch.equal(logits, weights[TOKENS] + torch.arange(12)[:, None])
    tupled = stage_of(lambda token_ids, positions: (honest(weights)(token_ids, positions), None))
    assert torch.equal(logits_of(tupled, TOKENS, ROWS), logits)
    with pytest.raises(TypeError, match="logits, not dict"):
        logits_of(stage_of(lambda **windows: {}), TOKENS, ROWS)
