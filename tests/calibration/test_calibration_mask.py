"""Padding is computed by the host, and fits no scale."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from flashrt.calibration.collect import collect
from flashrt.calibration.kinds import Samples
from flashrt.calibration.mask import Mask
from flashrt.calibration.reduce import reduce
from flashrt.calibration.statistic import Granularity, Kind, Statistic
from flashrt.calibration.summary import warnings
from flashrt.calibration.table import read_samples, table_bytes
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason, Refusal

B, T, W = 2, 5, 16
COUNTED = torch.ones(B, T, dtype=torch.bool)
COUNTED[1, 3:] = False


@dataclass(frozen=True)
class Batch:
    id: str
    x: torch.Tensor
    mask: torch.Tensor | None = field(default_factory=COUNTED.clone)


class Host(nn.Module):
    """Sees the positions whole, flattened, split into heads, and, as an expert does, in part."""

    def __init__(self) -> None:
        super().__init__()
        self.whole, self.flat, self.heads, self.expert = (nn.Identity() for _ in range(4))

    def forward(self, batch: Batch) -> None:
        x = batch.x
        self.whole(x)
        self.flat(x.reshape(-1, W))
        self.heads(x.reshape(B, T, 4, W // 4))
        self.expert(x.reshape(-1, W)[:7])


def seam(module: str) -> Seam:
    return Seam(
        module, "linear_proj@1", {"self": module}, {}, {}, {}, {"x": Point(module, "input")}
    )


def batch(name: str = "a", padding: float = 1e9) -> Batch:
    torch.manual_seed(0)
    x = torch.randn(B, T, W)
    x[~COUNTED] = padding
    return Batch(name, x)


def measure(frames: list[Batch], points: str = "whole flat heads", **also: Any) -> Samples:
    model = Host().eval()
    seams = [seam(name) for name in points.split()]
    return collect(model, seams, frames, model, mask=lambda frame: frame.mask, **also)


@pytest.mark.parametrize("padding", [1e9, float("nan"), float("inf")])
def test_masked_positions_are_not_measured_whatever_they_hold(padding: float) -> None:
    samples = measure([batch(padding=padding)])
    true = batch().x[COUNTED].abs().max().item()
    assert samples.amax[0].tolist() == [pytest.approx(true, abs=0.0)] * 3
    assert samples.unmasked == ()
    asked = {("whole", "x"): Statistic(Kind.SECOND_MOMENT, Granularity.TENSOR)}
    (moment,) = measure([batch(padding=padding)], statistics=asked).grouped
    assert moment.rows == int(COUNTED.sum())


def test_without_a_mask_every_position_counts() -> None:
    frame = Batch("a", batch().x, None)
    assert measure([frame]).amax[0].tolist() == [1e9] * 3
    whole = Batch("a", batch().x, torch.ones(B, T, dtype=torch.bool))
    assert measure([whole]).amax[0].tolist() == [1e9] * 3


def test_a_flat_mask_says_the_same() -> None:
    frame = Batch("a", batch().x, COUNTED.reshape(-1))
    assert (measure([frame]).amax == measure([batch()]).amax).all()


def test_a_frame_of_nothing_but_padding_reaches_no_point() -> None:
    nothing = Batch("b", batch().x, torch.zeros(B, T, dtype=torch.bool))
    samples = measure([batch(), nothing])
    assert samples.seen.tolist() == [[True] * 3, [False] * 3]
    assert samples.observations[0].calls == 1


def test_a_point_whose_rows_are_not_positions_is_told_of() -> None:
    samples = measure([batch()], "whole expert")
    assert [samples.addresses[i].name for i in samples.unmasked] == ["expert:x"]
    reduction = reduce(samples, 100.0)
    record = {p.address.seam: p.record() for p in reduction.points}
    assert record["expert"]["unmasked"] is True
    assert "unmasked" not in record["whole"]
    (told,) = (b for b in warnings(reduction) if b.reason is Reason.SHAPE)
    assert told.subject == "expert:x"
    again = read_samples(
        table_bytes(samples), samples.addresses, samples.frames, samples.observations
    )
    assert again.unmasked == samples.unmasked


def test_a_mask_that_fits_no_point_is_refused() -> None:
    wrong = Batch("a", batch().x, torch.tensor([True, False, True]))
    with pytest.raises(Refusal, match="no point has the mask's positions") as caught:
        measure([wrong])
    assert caught.value.reason is Reason.SHAPE
    transposed = Batch("a", batch().x, COUNTED.T)
    with pytest.raises(Refusal, match="no point has the mask's positions"):
        measure([transposed], "whole")


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_a_mask_that_is_not_bool_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(Refusal, match=r"attention_mask\.bool") as caught:
        Mask(COUNTED.to(dtype))
    assert caught.value.reason is Reason.DTYPE


@pytest.mark.parametrize(
    ("mask", "tensor", "fits"),
    [
        ((2, 5), (2, 5, 8), True),
        ((2, 5), (10, 8), True),
        ((2, 5), (2, 5, 4, 8), True),
        ((2, 5), (1, 2, 5, 8), True),
        ((2, 5), (5, 2, 8), False),
        ((2, 5), (2, 4, 8), False),
        ((1, 5), (5, 8), True),
        ((10,), (2, 5, 8), True),
        ((10,), (2, 4, 5, 8), False),
        ((1, 1), (1, 1, 8), True),
        ((1, 1), (1, 6, 8), False),
        ((5,), (8,), False),
        # sizes that coincide: another axis could as well be the positions
        ((4, 4), (4, 4, 8), False),
        ((4, 4), (16, 8), True),
        ((1, 4), (1, 4, 4, 8), False),
        ((1, 4), (1, 4, 8), True),
        ((2, 5), (2, 5, 5, 8), False),
        ((2, 5), (2, 2, 5, 8), False),
        ((2, 5), (10, 5, 8), False),
        ((2, 5), (10, 4, 8), True),
        ((10,), (2, 5, 10, 8), False),
    ],
)
def test_which_tensors_have_the_positions(
    mask: tuple[int, ...], tensor: tuple[int, ...], fits: bool
) -> None:
    assert Mask(torch.ones(mask, dtype=torch.bool)).fits(torch.ones(tensor)) is fits


def test_heads_as_many_as_tokens_are_told_of() -> None:
    x = torch.ones(1, 4, 4, 2)
    x[:, :, 3] = 99.0
    frame = Batch("a", x, torch.tensor([[True, True, True, False]]))
    model = nn.ModuleDict({"whole": nn.Identity(), "heads": nn.Identity()}).eval()

    def run(one: Batch) -> None:
        model["heads"](one.x)
        model["whole"](one.x[:, 0])

    seams = [seam("heads"), seam("whole")]
    samples = collect(model, seams, [frame], run, mask=lambda one: one.mask)
    assert samples.amax[0].tolist() == [99.0, 1.0]
    assert [samples.addresses[i].name for i in samples.unmasked] == ["heads:x"]


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        ([True, False], Reason.DTYPE),
        (np.array([True, False]), Reason.DTYPE),
        (torch.ones(0, dtype=torch.bool), Reason.SHAPE),
        (torch.ones(2, dtype=torch.bool).to_sparse(), Reason.LAYOUT),
        (torch.ones(2, dtype=torch.bool, device="meta"), Reason.LAYOUT),
    ],
    ids=["list", "numpy", "empty", "sparse", "meta"],
)
def test_what_is_no_mask_is_refused(mask: Any, reason: Reason) -> None:
    with pytest.raises(Refusal, match="the mask") as caught:
        measure([Batch("a", batch().x, mask)])
    assert caught.value.reason is reason


def test_the_rows_that_count_keep_their_order() -> None:
    x = torch.arange(B * T * W, dtype=torch.float32).reshape(B, T, W)
    assert torch.equal(Mask(COUNTED).rows(x), x[COUNTED])
