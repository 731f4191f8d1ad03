"""Finer statistics: per channel and block, maxima and second moments, over frames in any order."""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from flashrt.calibration.collect import collect
from flashrt.calibration.grouped import Stream
from flashrt.calibration.kinds import Samples
from flashrt.calibration.reduce import Verdict, reduce
from flashrt.calibration.statistic import AMAX, MEASURABLE, Granularity, Kind, Statistic
from flashrt.calibration.summary import warnings
from flashrt.calibration.table import FORMAT, read_samples, table_bytes
from flashrt.document.problem import InputError
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason, Refusal

WIDTH = 32
CHANNEL_AMAX = Statistic(Kind.AMAX, Granularity.CHANNEL)
BLOCK_MOMENT = Statistic(Kind.SECOND_MOMENT, Granularity.BLOCK_16)


@dataclass(frozen=True)
class Values:
    id: str
    calls: tuple[torch.Tensor, ...]


class Host(nn.Module):
    """Two projections that read one tensor, called once for every tensor of a frame."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Identity(), nn.Identity()

    def forward(self, frame: Values) -> None:
        for x in frame.calls:
            self.first(x)
            self.second(x)


def seam(module: str) -> Seam:
    return Seam(
        module, "linear_proj@1", {"self": module}, {}, {}, {}, {"x": Point(module, "input")}
    )


SEAMS = [seam("first"), seam("second")]


def frames(count: int, seed: int = 0, width: int = WIDTH) -> list[Values]:
    torch.manual_seed(seed)
    return [
        Values(f"f{i:03d}", tuple(torch.randn(2, 3 + i % 2, width) * (1 + i) for _ in range(2)))
        for i in range(count)
    ]


def measure(given_frames: list[Values], asked: Any, **also: Any) -> Samples:
    model = Host().eval()
    return collect(model, SEAMS, given_frames, model, statistics=asked, **also)


def both(first: Statistic, second: Statistic = AMAX) -> dict[tuple[str, str], Statistic]:
    return {("first", "x"): first, ("second", "x"): second}


def by_hand(given_frames: list[Values], statistic: Statistic, q: float) -> np.ndarray:
    size = statistic.granularity.size(WIDTH)
    if statistic.kind is Kind.AMAX:
        per_frame = [
            np.abs(torch.cat([c.reshape(-1, WIDTH) for c in f.calls]).numpy()).max(0)
            for f in given_frames
        ]
        groups = np.array(per_frame, dtype=np.float64).reshape(len(given_frames), -1, size).max(2)
        return np.percentile(groups, q, axis=0)
    rows = torch.cat([c.reshape(-1, WIDTH) for f in given_frames for c in f.calls]).double().numpy()
    return (rows**2).reshape(len(rows), -1, size).mean(axis=(0, 2))


@pytest.mark.parametrize(
    "statistic", sorted(MEASURABLE - {AMAX}, key=str), ids=lambda s: "-".join(s.record().values())
)
def test_every_statistic_is_what_the_rows_say(statistic: Statistic) -> None:
    given_frames = frames(5)
    reduction = reduce(measure(given_frames, both(statistic), percentile=60.0), 60.0)
    found = reduction.points[0].grouped
    assert found is not None
    expected = by_hand(given_frames, statistic, 60.0)
    if statistic.kind is Kind.AMAX:
        assert found.values == tuple(expected.tolist())
    else:
        np.testing.assert_allclose(found.values, expected, rtol=1e-14)
    assert found.rows == sum(c.shape[0] * c.shape[1] for f in given_frames for c in f.calls)
    assert reduction.points[0].statistics == {AMAX, statistic}
    # the other point reads the same tensor and asked for nothing
    assert reduction.points[1].grouped is None
    assert reduction.points[1].amax == reduction.points[0].amax


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([50.0, 99.9, 100.0]))
def test_frames_in_another_order_change_no_bit(rng: random.Random, q: float) -> None:
    given_frames = frames(9)
    shuffled = list(given_frames)
    rng.shuffle(shuffled)
    asked = both(CHANNEL_AMAX, BLOCK_MOMENT)
    one, two = (measure(f, asked, percentile=q) for f in (given_frames, shuffled))
    assert table_bytes(one) == table_bytes(two)
    assert [p.record() for p in reduce(one, q).points] == [
        p.record() for p in reduce(two, q).points
    ]
    assert [p.grouped for p in reduce(one, q).points] == [p.grouped for p in reduce(two, q).points]


def test_as_many_values_are_kept_as_the_percentile_reads() -> None:
    samples = measure(frames(40), both(CHANNEL_AMAX), percentile=95.0)
    assert samples.grouped[0].kept.shape == (3, WIDTH)
    assert reduce(samples, 95.0).points[0].grouped is not None
    with pytest.raises(Refusal, match="collect again for this percentile") as caught:
        reduce(samples, 50.0)
    assert caught.value.reason is Reason.PERCENTILE
    # 99.9 over 40 frames is the maximum, and nothing but the maximum is kept
    assert measure(frames(40), both(CHANNEL_AMAX)).grouped[0].kept.shape == (1, WIDTH)


def test_a_channel_that_saw_only_zeros_has_no_scale() -> None:
    given_frames = frames(2)
    for frame in given_frames:
        for call in frame.calls:
            call[..., 7] = 0.0
    reduction = reduce(measure(given_frames, both(CHANNEL_AMAX)), 100.0)
    point = reduction.points[0]
    assert point.verdict is Verdict.CALIBRATED
    assert [i for i, value in enumerate(point.grouped.values) if value is None] == [7]
    assert point.record()["grouped"]["dead"] == 1
    (told,) = (b for b in warnings(reduction) if b.reason is Reason.DEAD)
    assert told.detail == "1 of 32 values a channel are zero and have no scale"


def test_a_point_that_no_frame_reached_has_no_statistic() -> None:
    empty = [Values("a", ()), Values("b", ())]
    samples = measure(empty, both(CHANNEL_AMAX, BLOCK_MOMENT))
    assert samples.grouped == ()
    assert {p.verdict for p in reduce(samples, 100.0).points} == {Verdict.UNCALIBRATED}


def test_widths_that_do_not_fit_are_refused() -> None:
    odd = [Values("a", (torch.ones(2, 20),))]
    with pytest.raises(Refusal, match="first:x: 20 channels are not whole blocks of 16") as caught:
        measure(odd, both(BLOCK_MOMENT))
    assert caught.value.reason is Reason.SHAPE
    two_widths = [Values("a", (torch.ones(2, 16), torch.ones(2, 32)))]
    with pytest.raises(Refusal, match="16 channels in one call and 32 in another"):
        measure(two_widths, both(CHANNEL_AMAX))
    between = [Values("a", (torch.ones(2, 16),)), Values("b", (torch.ones(2, 32),))]
    with pytest.raises(Refusal, match=r"first:x, frame b: 16 channels in one frame and 32"):
        measure(between, both(CHANNEL_AMAX))
    with pytest.raises(Refusal, match=r"first:x, frame b: 16 channels in one frame and 32"):
        measure(between, both(Statistic(Kind.SECOND_MOMENT, Granularity.TENSOR)))
    # a tensor's amax has no width to disagree about
    assert measure(between, None).amax[:, 0].tolist() == [1.0, 1.0]


def test_what_no_point_or_collector_has_is_refused() -> None:
    with pytest.raises(Refusal, match="no seam has this point") as caught:
        measure(frames(1), {("first", "nothing"): CHANNEL_AMAX})
    assert caught.value.reason is Reason.BINDING
    with pytest.raises(Refusal, match="add a collector for amax per block_32") as caught:
        measure(frames(1), both(Statistic(Kind.AMAX, Granularity.BLOCK_32)))
    assert caught.value.reason is Reason.PERCENTILE
    with pytest.raises(Refusal, match="not a percentile"):
        measure(frames(1), None, percentile=0.0)


def test_one_bad_channel_refuses_the_run() -> None:
    given_frames = frames(3)
    given_frames[1].calls[0][0, 1, 5] = float("nan")
    with pytest.raises(Refusal, match=r"frame f001: first:x") as caught:
        measure(given_frames, both(CHANNEL_AMAX, BLOCK_MOMENT))
    assert caught.value.reason is Reason.NONFINITE


def test_a_stream_that_nothing_reached_is_nothing() -> None:
    assert Stream(0, CHANNEL_AMAX, 3, 100.0).finish() is None


def test_the_table_gives_the_samples_back() -> None:
    samples = measure(frames(6), both(CHANNEL_AMAX, BLOCK_MOMENT), percentile=60.0)
    data = table_bytes(samples)
    again = read_samples(data, samples.addresses, samples.frames, samples.observations)
    assert table_bytes(again) == data
    assert reduce(again, 60.0) == reduce(samples, 60.0)


def broken(**changed: np.ndarray | None) -> bytes:
    from safetensors.numpy import load, save

    tensors = load(table_bytes(measure(frames(2), both(CHANNEL_AMAX, BLOCK_MOMENT))))
    for name, value in changed.items():
        key = name.replace("__", ".")
        if value is None:
            tensors.pop(key)
        else:
            tensors[key] = value
    return save(tensors, metadata={"format": FORMAT})


@pytest.mark.parametrize(
    "changed",
    [
        {"grouped__0__facts": None},
        {"grouped__0__facts": np.array([WIDTH, 1, 28])},
        {"grouped__0__facts": np.array([WIDTH, 2, 0])},
        {"grouped__0__facts": np.array([-WIDTH, 2, 28])},
        {"grouped__0__amax__channel": np.ones((1, 16), dtype=np.float32)},
        {"grouped__0__amax__channel": np.full((1, WIDTH), np.nan, dtype=np.float32)},
        {"grouped__0__amax__channel": -np.ones((1, WIDTH), dtype=np.float32)},
        {"grouped__0__amax__channel": np.ones((9, WIDTH), dtype=np.float32)},
        {"grouped__0__amax__block_32": np.ones((1, 1), dtype=np.float32)},
        {"grouped__7__amax__channel": np.ones((1, WIDTH), dtype=np.float32)},
        {"grouped__x__amax__channel": np.ones((1, WIDTH), dtype=np.float32)},
        {"grouped__1__second_moment__block_16": np.ones((1, 2))},
        {"unmasked": np.ones(3, dtype=np.uint8)},
        {"amax": None},
        {"unmasked": np.zeros(2, dtype=np.uint8)},
        {"unmasked": np.full(2, 2, dtype=np.uint8)},
        {"foo": np.ones(9)},
        {"seen": np.full((2, 2), 255, dtype=np.uint8)},
        {"seen": np.full((2, 2), np.nan, dtype=np.float32)},
        {"seen": np.ones((2, 2), dtype=np.int64)},
        {"seen": np.zeros((2, 2), dtype=np.uint8)},
        {"amax": np.full((2, 2), -1.0, dtype=np.float32)},
        {"amax": np.full((2, 2), 1e6, dtype=np.float32)},
        {"grouped__5__facts": np.array([WIDTH, 2, 28])},
        {"grouped__1__second_moment__block_16": -np.ones((2, 2))},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_table_that_is_not_whole_is_refused(changed: dict[str, Any]) -> None:
    samples = measure(frames(2), both(CHANNEL_AMAX, BLOCK_MOMENT))
    with pytest.raises(InputError) as caught:
        read_samples(broken(**changed), samples.addresses, samples.frames, samples.observations)
    assert caught.value.reason is Reason.DIGEST
