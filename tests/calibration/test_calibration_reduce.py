import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.calibration.kinds import Address, Observation, Samples
from flashrt.calibration.reduce import (
    Verdict,
    effective_percentile,
    percentile,
    reduce,
    samples_for,
)
from flashrt.calibration.summary import by_reason, summary, warnings
from flashrt_runtime.reason import Because, Reason, Refusal

VALUES = st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=40)


def samples(rows: list[list[float]], seen: list[list[int]] | None = None) -> Samples:
    amax = np.array(rows, dtype=np.float32)
    count = amax.shape[1]
    return Samples(
        tuple(Address(f"seam{i}", "x", f"m{i}", "input") for i in range(count)),
        tuple(f"f{i}" for i in range(len(rows))),
        amax,
        np.array(seen, dtype=bool) if seen else np.ones_like(amax, dtype=bool),
        (Observation((4, 4), 8, "float32", 1),) * count,
    )


@given(VALUES, st.floats(0, 100))
def test_the_percentile_is_numpys_to_the_bit(values: list[float], q: float) -> None:
    assert percentile(values, q) == np.percentile(np.array(values), q)


@given(VALUES, st.floats(0.1, 100), st.randoms(use_true_random=False))
def test_the_order_of_samples_has_no_effect(
    values: list[float], q: float, rng: random.Random
) -> None:
    shuffled = list(values)
    rng.shuffle(shuffled)
    one = reduce(samples([[v] for v in values]), q)
    two = reduce(samples([[v] for v in shuffled]), q)
    assert one.points[0].record() == two.points[0].record()


def test_a_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 50.0)


def test_a_percentile_that_the_samples_cannot_express_is_the_maximum() -> None:
    assert effective_percentile(99.9, 8) == 100.0
    assert effective_percentile(99.9, 1000) == 99.9
    assert effective_percentile(95.0, 19) == 100.0
    assert effective_percentile(95.0, 20) == 95.0
    assert samples_for(99.9) == 1000
    reduction = reduce(samples([[float(i)] for i in range(1, 9)]), 99.9)
    assert (reduction.asked, reduction.effective) == (99.9, 100.0)
    assert reduction.points[0].amax == 8.0
    first = warnings(reduction)[0]
    assert first.reason is Reason.UNDERSAMPLED
    assert "which takes 1000" in first.detail
    assert "in effect the maximum" in summary(reduction, "brown")


@pytest.mark.parametrize("q", [0.0, -1.0, 100.1, float("nan")])
def test_what_is_not_a_percentile_is_refused(q: float) -> None:
    with pytest.raises(Refusal) as caught:
        effective_percentile(q, 10)
    assert caught.value.reason is Reason.PERCENTILE


def test_every_verdict() -> None:
    rows = [[1.0, 0.0, 0.0, 30.0, 2.0], [1.5, 0.0, 0.0, 31.0, 0.0]]
    seen = [[1, 1, 0, 1, 1], [1, 1, 0, 1, 0]]
    reduction = reduce(samples(rows, seen), 50.0)
    verdicts = [p.verdict for p in reduction.points]
    assert verdicts == [
        Verdict.CALIBRATED,
        Verdict.DEAD,
        Verdict.UNCALIBRATED,
        Verdict.CALIBRATED,
        Verdict.UNDERSAMPLED,
    ]
    assert [p.amax is None for p in reduction.points] == [False, True, True, False, False]
    assert {w.reason for w in warnings(reduction)} == {
        Reason.DEAD,
        Reason.UNCALIBRATED,
        Reason.UNDERSAMPLED,
    }


def test_the_ceiling_is_twenty_times_the_median() -> None:
    reduction = reduce(samples([[1.0, 1.0, 1.0, 20.0, 20.1]]), 100.0)
    assert reduction.limit == 20.0
    assert [p.verdict for p in reduction.points[3:]] == [Verdict.CALIBRATED, Verdict.OUTLIER]
    assert any(w.reason is Reason.OUTLIER and "20 x" in w.detail for w in warnings(reduction))


def test_dispersion_is_maximum_over_median() -> None:
    point = reduce(samples([[1.0], [2.0], [10.0]]), 100.0).points[0]
    assert (point.minimum, point.median, point.maximum, point.dispersion) == (1.0, 2.0, 10.0, 5.0)


def test_a_point_that_is_zero_at_the_percentile_has_no_scale() -> None:
    reduction = reduce(samples([[0.0], [0.0], [5.0]]), 50.0)
    assert reduction.points[0].verdict is Verdict.DEAD
    assert reduction.points[0].amax is None
    assert "zero at percentile" in warnings(reduction)[-1].detail


def test_a_person_reads_a_few_of_many_warnings() -> None:
    many = [Because(Reason.OUTLIER, "big", f"p{i}") for i in range(9)]
    shown = by_reason([Because(Reason.UNDERSAMPLED, "few"), *many])
    assert len(shown) == 7
    assert shown[-1].detail.startswith("and 4 more")
