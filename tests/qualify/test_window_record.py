"""What a process records about an arm's windows: followed, not followed, and constant."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from flashrt.qualify.feed import Feed
from flashrt.qualify.merge import merge
from flashrt.qualify.window_record import telling, window_record
from flashrt_runtime.capture import Stage

FRAMES = {"a": torch.tensor([0, 7, 3, 9, 5])}


class Step(nn.Module):
    """Two tables: the logits of a token at a position."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(16, 8), nn.Embedding(32, 8)
        self.requires_grad_(False)

    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """``[1, rows, 8]``."""
        return self.words(token_ids) + self.places(positions)


@pytest.fixture
def feed():
    return Feed(FRAMES, 1, 32)


@pytest.fixture
def step():
    return Step().eval()


def stage_of(run):
    windows = {
        "token_ids": torch.zeros((1, 1), dtype=torch.int64),
        "positions": torch.zeros(1).long(),
    }
    return Stage("arm", ("compile",), windows, run, seam_operators={}, options={})


def test_a_turn_is_chosen_whose_windows_can_be_changed(feed):
    assert int(feed.turns[0].token_ids) == 0
    assert int(telling(feed).token_ids) > 0
    assert int(telling(feed).positions) > 0


def test_a_feed_without_such_a_turn_records_what_was_not_changed(step):
    feed = Feed({"a": torch.tensor([0])}, 1, 1)
    seen = window_record("host", stage_of(step), step, feed, 2)
    assert seen["unchanged"]
    assert (seen["refused"], seen["process"]) == (None, 2)


def test_a_step_that_follows_is_recorded_window_by_window(feed, step):
    stage = stage_of(step)
    assert window_record("treated", stage, step, feed, 1) == {
        "process": 1,
        "arm": "treated",
        "windows": ["token_ids", "positions"],
        "held": [],
        "unchanged": [],
        "refused": None,
    }
    assert stage.replays == 0


@pytest.mark.parametrize("baked", ["token_ids", "positions"])
def test_a_window_that_was_baked_in_is_named(feed, step, baked):
    turn = telling(feed)
    was = {"token_ids": turn.token_ids.clone(), "positions": turn.positions.clone()}[baked]
    stage = stage_of(lambda **given: step(**{**given, baked: was}))
    seen = window_record("treated", stage, step, feed, 0)
    assert seen["refused"]["name"] == "UNCAPTURABLE"
    assert repr(baked) in seen["refused"]["detail"]
    assert seen["windows"] == []


def test_an_output_that_no_window_changes_is_constant(feed):
    class Constant(Step):
        def forward(self, token_ids, positions):
            return self.words.weight[None, :1]

    step = Constant().eval()
    seen = window_record("host", stage_of(step), step, feed, 0)
    assert seen["refused"]["name"] == "CONSTANT"
    assert "token_ids, positions" in seen["refused"]["detail"]


def test_records_of_all_processes_are_merged_and_an_old_fragment_has_none():
    def fragment(process, **more):
        kept = ("empty_control", "path", "null", "race", "setup_s", "machine", "rollback", "poison")
        return {"process": process, **{key: {} for key in kept}, **more}

    new = [fragment(p, window_check=[{"process": p, "arm": a} for a in "ht"]) for p in range(2)]
    seen = merge(new, {}, {}, "held_out")["window_check"]
    assert [(one["process"], one["arm"]) for one in seen] == [
        (0, "h"), (0, "t"), (1, "h"), (1, "t"),
    ]  # fmt: skip
    assert "window_check" not in merge([fragment(0)], {}, {}, "held_out")
