"""A long phase says how far it is, and a short one does not chatter."""

from __future__ import annotations

import pytest

from flashrt.qualify.counted import EVERY_S, counted


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.1, ["logits: 4"]),
        (EVERY_S, ["logits: 4", "logits: 1 of 4", "logits: 2 of 4", "logits: 3 of 4"]),
        (EVERY_S / 2, ["logits: 4", "logits: 2 of 4"]),
    ],
)
def test_progress_is_told_every_few_seconds(seconds, expected):
    clock = [0.0]
    told: list[str] = []
    seen = []
    for item in counted(told.append, "logits", "abcd", now=lambda: clock[0]):
        seen.append(item)
        clock[0] += seconds
    assert seen == ["a", "b", "c", "d"]
    assert told == expected


def test_nothing_to_do_is_told_once():
    told: list[str] = []
    assert list(counted(told.append, "parity", [])) == []
    assert told == ["parity: 0"]
