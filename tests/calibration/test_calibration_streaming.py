"""Streams keep a few values and lose nothing: numpy's percentile to the bit, in any order."""

import math
import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.calibration.streaming import Moments, TopK, between, needed, of_largest, ranks
from flashrt_runtime.reason import Reason, Refusal

VALUE = st.floats(0, float(np.float32(3e38)), width=32)
TABLES = st.integers(1, 4).flatmap(
    lambda points: st.lists(
        st.lists(VALUE, min_size=points, max_size=points), min_size=1, max_size=60
    )
)
PERCENT = st.floats(0, 100, exclude_min=True) | st.sampled_from([50.0, 90.0, 99.0, 99.9, 100.0])


def stream(rows: list[list[float]], q: float, seen: np.ndarray | None = None) -> TopK:
    top = TopK(len(rows[0]), len(rows), q)
    for i, row in enumerate(rows):
        top.add(np.array(row, dtype=np.float32), None if seen is None else seen[i])
    return top


def bits(values: np.ndarray) -> list[str]:
    return [float(value).hex() for value in values]


@given(TABLES, PERCENT)
def test_the_result_is_numpys_percentile_to_the_bit(rows: list[list[float]], q: float) -> None:
    everything = np.array(rows, dtype=np.float64)
    expected = np.percentile(everything, q, axis=0, method="linear")
    assert bits(stream(rows, q).result()) == bits(expected)


@given(TABLES, PERCENT, st.randoms(use_true_random=False))
def test_the_order_of_samples_has_no_effect(
    rows: list[list[float]], q: float, rng: random.Random
) -> None:
    shuffled = list(rows)
    rng.shuffle(shuffled)
    one, two = stream(rows, q), stream(shuffled, q)
    assert bits(one.result()) == bits(two.result())
    assert one.kept().tobytes() == two.kept().tobytes()


@given(TABLES, PERCENT, st.integers(0, 2**32 - 1))
def test_a_point_is_reduced_over_the_samples_that_reached_it(
    rows: list[list[float]], q: float, seed: int
) -> None:
    seen = np.random.default_rng(seed).random((len(rows), len(rows[0]))) < 0.5
    result = stream(rows, q, seen).result()
    for point, value in enumerate(result):
        column = np.array(rows, dtype=np.float64)[seen[:, point], point]
        expected = np.percentile(column, q) if len(column) else math.nan
        assert float(value).hex() == float(expected).hex()


@given(st.integers(1, 3000), PERCENT)
def test_no_more_is_needed_than_the_percentile_reads(samples: int, q: float) -> None:
    k = needed(samples, q)
    lowest = [count - ranks(count, q)[0] for count in range(max(1, samples - 50), samples + 1)]
    assert max(lowest) <= k <= samples
    assert k <= samples * (1 - q / 100.0) + 3


def test_memory_is_that_of_the_kept_values() -> None:
    points, samples = 512, 4000
    rng = np.random.default_rng(0)
    row = rng.random(points, dtype=np.float32)
    tracemalloc.start()
    try:
        top = TopK(points, samples, 99.9)
        for _ in range(samples):
            top.add(row)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert top.k == 5
    # the room of kept and incoming rows, and a few rows of scratch: not the 8 MB that were streamed
    assert peak < (top.k + 8 + 16) * points * 8


@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(1, 8), st.floats(50, 100))
def test_what_is_kept_is_bounded_by_k(samples: int, points: int, q: float) -> None:
    rng = np.random.default_rng(samples)
    top = TopK(points, samples, q)
    rows = rng.random((samples, points), dtype=np.float32)
    for row in rows:
        top.add(row)
    assert top.kept().shape == (top.k, points)
    assert (top.kept() == np.sort(rows, axis=0)[::-1][: top.k]).all()


def test_a_value_that_is_not_finite_is_refused_and_leaves_nothing() -> None:
    top = TopK(2, 3, 100.0)
    top.add(np.array([1.0, 2.0], dtype=np.float32))
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(Refusal, match="value 1 of the sample") as caught:
            top.add(np.array([9.0, bad], dtype=np.float32))
        assert caught.value.reason is Reason.NONFINITE
    # where the point was not reached, the value means nothing
    top.add(np.array([3.0, math.nan], dtype=np.float32), np.array([True, False]))
    assert top.result().tolist() == [3.0, 2.0]


def test_what_was_not_announced_is_refused() -> None:
    top = TopK(1, 1, 99.0)
    with pytest.raises(ValueError, match="values for 1 points"):
        top.add(np.zeros(2, dtype=np.float32))
    top.add(np.ones(1, dtype=np.float32))
    with pytest.raises(ValueError, match="announced"):
        top.add(np.ones(1, dtype=np.float32))
    with pytest.raises(ValueError, match="over 0 samples"):
        TopK(1, 0, 99.0)
    for q in (0.0, 100.5, math.nan):
        with pytest.raises(Refusal) as caught:
            TopK(1, 1, q)
        assert caught.value.reason is Reason.PERCENTILE


def test_a_percentile_that_reads_what_was_not_kept_is_refused() -> None:
    top = np.array([[5.0], [4.0]], dtype=np.float32)
    assert of_largest(top, 5, 80.0).tolist() == [4.2]
    with pytest.raises(Refusal, match="reads the 3 largest values and 2 were kept") as caught:
        of_largest(top, 5, 50.0)
    assert caught.value.reason is Reason.PERCENTILE


@given(VALUE, VALUE, st.floats(0, 1, exclude_max=True))
def test_between_is_numpys_interpolation(one: float, two: float, weight: float) -> None:
    low, high = sorted((one, two))
    lerp = np.lib._function_base_impl._lerp(np.float64(low), np.float64(high), np.float64(weight))
    assert float(between(low, high, weight)) == float(lerp)


@given(st.lists(st.floats(0, 1e30), min_size=1, max_size=50))
def test_sums_lose_nothing_that_a_float64_can_hold(values: list[float]) -> None:
    moments = Moments(1)
    for value in values:
        moments.add(np.array([value]))
    exact = math.fsum(values)
    assert float(moments.sums.sum(axis=0)[0]) == pytest.approx(exact, rel=2**-52, abs=0.0)


def test_a_small_square_is_not_lost_beside_a_large_one() -> None:
    moments = Moments(1)
    for value in (1.0, *[2.0**-53] * 1024):
        moments.add(np.array([value]))
    plain = 1.0
    for _ in range(1024):
        plain += 2.0**-53
    assert plain == 1.0
    assert moments.sums.sum() == 1.0 + 2.0**-43


def test_a_sum_that_overflows_is_refused() -> None:
    moments = Moments(1)
    moments.add(np.array([1.7e308]))
    with pytest.raises(Refusal) as caught:
        moments.add(np.array([1.7e308]))
    assert caught.value.reason is Reason.NONFINITE
    assert moments.sums[0, 0] == 1.7e308
