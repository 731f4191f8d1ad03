"""The rotation that a race feeds: real tokens, judged steps in their order, and far ones."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from flashrt.qualify.feed import Feed
from flashrt_runtime.capture import capture


def frames_of(count: int, length: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {f"f{i}": torch.randperm(90)[:length] for i in range(count)}


@pytest.mark.parametrize(("rows", "context"), [(1, 64), (4, 64), (4, 33), (8, 32), (32, 32)])
def test_consecutive_samples_differ_and_stay_inside_the_cache(rows, context):
    feed = Feed(frames_of(3, 32), rows, context)
    seen = [feed.turn(i) for i in range(2 * len(feed.turns) + 1)]
    for turn in seen:
        assert tuple(turn.token_ids.shape) == (1, rows)
        assert int(turn.positions[0]) >= 0
        assert int(turn.positions[-1]) < context
        assert turn.positions.diff().eq(1).all()
    for one, other in pairwise(seen):
        assert not torch.equal(one.token_ids, other.token_ids)


def test_judged_steps_come_in_order_and_far_turns_never_touch_what_they_see():
    frames = frames_of(2, 12)
    feed = Feed(frames, 2, 64)
    judged = [turn for turn in feed.turns if turn.judged]
    assert [turn.judged for turn in judged] == [(n, s) for n in frames for s in range(6)]
    for turn in judged:
        name, step = turn.judged
        assert torch.equal(turn.token_ids[0], frames[name][2 * step : 2 * step + 2])
        assert turn.positions.tolist() == [2 * step, 2 * step + 1]
    far = [turn for turn in feed.turns if not turn.judged]
    assert len(far) == len(judged) // 3
    assert min(int(turn.positions[0]) for turn in far) >= 32
    assert [turn.judged is None for turn in feed.turns[:8]] == [False, False, False, True] * 2


def test_a_frame_as_long_as_the_cache_leaves_no_room_for_far_turns():
    feed = Feed(frames_of(2, 16), 16, 16)
    assert [turn.judged for turn in feed.turns] == [("f0", 0), ("f1", 0)]


def test_one_step_alone_alternates_with_another_one():
    feed = Feed({"only": torch.tensor([0, 5])}, 2, 2)
    assert [turn.judged for turn in feed.turns] == [("only", 0), None]
    assert feed.turns[1].token_ids.tolist() == [[1, 4]]


def test_a_turn_knows_whether_its_windows_were_left_alone():
    windows = {"token_ids": torch.zeros((1, 2), dtype=torch.int64), "positions": torch.arange(2)}
    stage = capture(lambda token_ids, positions: token_ids + positions, windows, form=("eager",))
    turn = Feed(frames_of(1, 8), 2, 32).turn(1)
    turn.load(stage)
    assert turn.intact(stage)
    for name in windows:
        turn.load(stage)
        stage.windows[name][..., -1] += 1
        assert not turn.intact(stage)
