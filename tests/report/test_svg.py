"""Scales hold their values and their ticks; text is text."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.report.svg import Labels, LogScale, mark, number, text

VALUES = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20)


@given(VALUES)
def test_each_value_is_on_the_scale_in_its_order(values: list[float]) -> None:
    scale = LogScale.around(values, 0.0, 500.0)
    places = [scale(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(0 <= place <= 500 for place in places)


@given(VALUES)
def test_ticks_are_inside_and_apart(values: list[float]) -> None:
    scale = LogScale.around(values, 400.0, 0.0)
    ticks = scale.ticks(apart=25.0)
    assert all(scale.low <= tick <= scale.high for tick in ticks)
    assert all(abs(scale(a) - scale(b)) >= 25.0 for a, b in pairwise(ticks))


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.08), (1.0, 2.3), (0.5, 30.0), (1e-4, 1e5)])
def test_there_are_ticks_to_read(low: float, high: float) -> None:
    ticks = LogScale.around([low, high], 0.0, 400.0).ticks()
    assert 2 <= len(ticks) <= 14


def test_no_positive_value_still_makes_a_scale() -> None:
    scale = LogScale.around([0.0, math.inf, math.nan, -1.0], 0.0, 10.0)
    assert scale.low < scale.high
    assert scale(-5.0) == 0.0


def test_numbers_are_short() -> None:
    assert [number(v) for v in (0.001, 20.0, 3189.2, 1.25e6)] == ["0.001", "20", "3189", "1.25e+06"]


def test_text_and_unknown_verdicts_are_harmless() -> None:
    assert "<b>" not in text((0, 0), "<b>")
    assert 'class="v other"' in mark('"><script>', (1, 2))


def test_a_label_without_room_is_left_out_and_the_first_one_stays() -> None:
    labels = Labels()
    labels.put((100, 50), "first")
    labels.put((110, 55), "over it")
    labels.put((110, 70), "under it")
    labels.put((99, 50), "before it", "end")
    assert [label.split(">")[1] for label in labels.drawn] == [
        "first</text", "under it</text", "before it</text",
    ]  # fmt: skip
